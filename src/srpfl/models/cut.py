"""A model cut in two where its trained layers begin.

Found by trying it out, so it holds for models of any make: the block to cut after is the last one
without trained layers for which the rest of the model needs nothing of what came before it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from srpfl.core.backbone import copied
from srpfl.core.streams import streams
from srpfl.core.trees import Tree, arguments, leaves
from srpfl.errors import ConfigError


class _Reached(Exception):
    """The rest of the pass is not needed."""


class Below(nn.Module):
    """The frozen layers up to the cut: from inputs to what the first trained block sees."""

    def __init__(self, model: nn.Module, last: str) -> None:
        super().__init__()
        self.model = copied(model).eval()
        self.found: list[Any] = []
        self.model.get_submodule(last).register_forward_hook(self._stop)

    def _stop(self, _module: nn.Module, _inputs: Any, outputs: Any) -> None:
        self.found.append(_tensor(outputs))
        raise _Reached

    def forward(self, x: Tree) -> Tensor:
        args, named = arguments(x)
        self.found.clear()
        with suppress(_Reached):
            self.model(*args, **named)
        features: Tensor = self.found.pop()
        return features


@dataclass
class _Held:
    """What goes in at the cut, while a pass is on."""

    value: Tensor | None = None
    unused: Tensor | None = None  # in the place of what comes before the cut


class _Known(nn.Module):
    """Stands for a block whose output is known, or not needed."""

    def __init__(self, held: _Held, *, needed: bool, paired: bool) -> None:
        super().__init__()
        self.held, self.needed, self.paired = held, needed, paired

    def forward(self, *_args: Any, **_named: Any) -> Any:
        value = self.held.value if self.needed else self.held.unused
        return (value,) if self.paired else value


class Above(nn.Module):
    """The model from the cut on: takes features first, and the inputs, for masks and the like."""

    def __init__(self, model: nn.Module, calls: _Calls, before: list[str]) -> None:
        super().__init__()
        self.held = _Held()
        self.inner = copied(model)
        for name in before:
            known = _Known(self.held, needed=name == before[-1], paired=name in calls.paired)
            self.inner.set_submodule(name, known)

    def forward(self, features: Tensor, *args: Any, **named: Any) -> Any:
        self.held.value = features
        if self.held.unused is None:
            self.held.unused = features
        try:
            return self.inner(*args, **named)
        finally:
            self.held.value = self.held.unused = None


@dataclass
class _Calls:
    """The order in which a pass calls a model's parts."""

    begun: list[str] = field(default_factory=list)
    ended: dict[str, int] = field(default_factory=dict)  # how many parts had begun by then
    paired: set[str] = field(default_factory=set)  # return a tuple of one


def cut(model: nn.Module, probe: Tree) -> tuple[Below, Above]:
    """Both parts of a model, tried out on a few samples."""
    calls, outputs = _watched(model, probe)
    moving = {name for name in calls.begun if _trains(model.get_submodule(name))}
    lowest = {n for n in moving if not any(o.startswith(f"{n}.") for o in moving if o != n)}
    first = min((calls.begun.index(name) for name in lowest), default=len(calls.begun))
    still = [n for n, end in calls.ended.items() if end <= first and n not in moving]
    still = [n for n in still if not any(n.startswith(f"{other}.") for other in still)]
    for place in range(len(still) - 1, -1, -1):
        before = still[: place + 1]
        below, above = Below(model, before[-1]), Above(model, calls, before)
        with torch.no_grad(), streams():
            features = below(probe)
            above.held.unused = torch.full_like(features, torch.nan)  # what needs it shows
            training = copied(above).train()
            try:
                found = _outputs(above.eval(), beside(features, probe))
                shown = leaves(_outputs(training, beside(features, probe)))
            except Exception:  # whatever the model's code does with what is not there
                continue
        if torch.equal(found, outputs) and not any(each.isnan().any() for each in shown):
            return below, above.train(model.training)
    raise ConfigError(
        "nothing can be computed once: the model's first layers are trained, or later ones look "
        "back at them"
    )


def _watched(model: nn.Module, probe: Tree) -> tuple[_Calls, Any]:
    calls, tried = _Calls(), copied(model).eval()
    for name, module in tried.named_modules():
        if name:
            module.register_forward_pre_hook(_beginning(calls, name))
            module.register_forward_hook(_ending(calls, name))
    with torch.no_grad():
        outputs = _outputs(tried, probe)
    often = {name for name in calls.ended if calls.begun.count(name) > 1}
    calls.ended = {name: end for name, end in calls.ended.items() if name not in often}
    return calls, outputs


def _beginning(calls: _Calls, name: str) -> Any:
    return lambda _module, _inputs: calls.begun.append(name)


def _ending(calls: _Calls, name: str) -> Any:
    def note(_module: nn.Module, _inputs: Any, outputs: Any) -> None:
        if _tensor(outputs) is not None:
            calls.ended[name] = len(calls.begun)
            if isinstance(outputs, tuple):
                calls.paired.add(name)

    return note


def _tensor(outputs: Any) -> Tensor | None:
    """The one tensor that a block returns, if it does."""
    if isinstance(outputs, tuple) and len(outputs) == 1:
        (outputs,) = outputs
    return outputs if isinstance(outputs, Tensor) and outputs.is_floating_point() else None


def _outputs(model: nn.Module, x: Tree) -> Any:
    args, named = arguments(x)
    outputs = model(*args, **named)
    return getattr(outputs, "logits", outputs)


def _trains(module: nn.Module) -> bool:
    return any(value.requires_grad for value in module.parameters())


def beside(features: Any, x: Tree) -> Tree:
    """Inputs of :class:`Above`: the features, and what the whole model takes."""
    if isinstance(x, dict):
        return {"features": features, **x}
    return (features, *x) if isinstance(x, tuple) else (features, x)

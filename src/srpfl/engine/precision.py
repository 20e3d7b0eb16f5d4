"""How exactly to compute: a name for each choice, and what it switches on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from srpfl.core.split import Params, fixed_of
from srpfl.core.trees import Tree, arguments, leaves, mapped
from srpfl.engine.batchnorm import noting, statistics_names, taken
from srpfl.engine.dropout import KeyedDropout
from srpfl.engine.functions import Functions
from srpfl.engine.recomputed import Recomputed
from srpfl.errors import ConfigError, unknown

STEP = "key of the step"  # under which a pass is given the key of its random choices
# Parameters and inputs to outputs and, where layers keep statistics, their new values.
Forward = Callable[[Params, Tree], tuple[Any, Params]]


@dataclass(frozen=True)
class Precision:
    """The numbers that parameters are kept in, and those that a forward pass is computed in. What
    nobody trains is kept in the latter: more would be lost in every pass, and take more memory."""

    kept: torch.dtype = torch.float32
    computed: torch.dtype = torch.float32
    tf32: bool = False

    @classmethod
    def of(cls, name: str) -> Precision:
        """
        >>> Precision.of("bfloat16").kept
        torch.float32
        """
        if name not in PRECISIONS:
            raise unknown("precision", name, PRECISIONS)
        return PRECISIONS[name]

    def placed(self, model: nn.Module, device: torch.device) -> nn.Module:
        """An engine's own copy of a model, converted and moved to its device."""
        low = fixed_of(model).keys() - set(statistics_names(model))
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if value.is_floating_point():
                value.data = value.data.to(self.computed if name in low else self.kept)
        for module in model.modules():
            for name, held in list(vars(module).items()):
                if isinstance(held, Tensor):  # an attribute that is no buffer; PyTorch leaves it
                    setattr(module, name, held.to(device))
        return model.to(device)

    def called(self, model: nn.Module, fixed: Mapping[str, Tensor] | None = None) -> Forward:
        """The model as a function of its parameters, in the numbers to compute in; outputs, and so
        losses, in the kept ones. ``fixed`` are the values that no caller gives."""
        if self.computed == self.kept:
            return called(model, fixed)
        exact = frozenset(statistics_names(model))  # layers count on these to be exact

        def lowered(params: Mapping[str, Tensor]) -> Params:
            return {n: v if n in exact else self._low(v) for n, v in params.items()}

        forward = called(model, lowered(fixed or {}))

        def low(params: Params, x: Tree) -> tuple[Any, Params]:
            outputs, statistics = forward(lowered(params), mapped(self._low, x))
            return mapped(self._kept, outputs), mapped(self._kept, statistics)

        return low

    def cast(self, value: Tensor, device: torch.device) -> Tensor:
        return value.to(device, self.kept if value.is_floating_point() else value.dtype)

    def _low(self, value: Tensor) -> Tensor:
        return value.to(self.computed) if value.is_floating_point() else value

    def _kept(self, value: Tensor) -> Tensor:
        return value.to(self.kept) if value.is_floating_point() else value

    @contextmanager
    def switched(self) -> Iterator[None]:
        """TF32 as asked. PyTorch's switches are global, and on by default for convolutions. Of
        an operation without bfloat16 PyTorch's error says so by name."""
        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        before = matmul.allow_tf32, cudnn.allow_tf32
        matmul.allow_tf32, cudnn.allow_tf32 = self.tf32, self.tf32
        try:
            yield
        except RuntimeError as error:
            if self.computed != torch.bfloat16 or "bfloat16" not in str(error).lower():
                raise
            why = str(error).splitlines()[0]
            told = f"an operation of the model has no bfloat16 ({why})"
            raise ConfigError(f"{told}: use precision='tf32' or 'float32'") from error
        finally:
            matmul.allow_tf32, cudnn.allow_tf32 = before


PRECISIONS = {
    "float32": Precision(),
    "float64": Precision(torch.float64, torch.float64),
    "tf32": Precision(tf32=True),
    "bfloat16": Precision(computed=torch.bfloat16, tf32=True),
}


def other_names(model: nn.Module) -> dict[str, list[str]] | None:
    """Under which other names a model has its tensors, by the first; None if no layer of it stands
    at two places. PyTorch, which finds such names by itself, sets a layer at two places twice, and
    then does not set it back."""
    if len(list(model.named_modules(remove_duplicate=False))) == len(list(model.modules())):
        return None
    first: dict[int, str] = {}
    found: dict[str, list[str]] = {}
    for place, module in model.named_modules():
        for name, value in [*module._parameters.items(), *module._buffers.items()]:
            full = f"{place}.{name}" if place else name
            if value is not None and first.setdefault(id(value), full) != full:
                found.setdefault(first[id(value)], []).append(full)
    return found


def has_ties(model: nn.Module) -> bool:
    """Whether a tensor of the model has two names."""
    named = [model.named_parameters, model.named_buffers]
    tensors = [value for each in named for _, value in each(remove_duplicate=False)]
    return len({id(value) for value in tensors}) < len(tensors)


def called(model: nn.Module, fixed: Mapping[str, Tensor] | None = None) -> Forward:
    """The model as a function of its parameters and inputs: a tensor, a tuple of several, or a dict
    of them by the names of its arguments."""
    fixed = dict(fixed or {})
    layers = [module for module in model.modules() if isinstance(module, KeyedDropout)]
    norms = noting(model)
    blocks = [module for module in model.modules() if isinstance(module, Recomputed)]
    others = other_names(model)
    tied = others is None and has_ties(model)  # PyTorch would look for them at every call

    def forward(params: Params, x: Tree) -> tuple[Any, Params]:
        for layer in layers:
            layer.uses = 0
        args, named = arguments(x)
        given = {**fixed, **params}
        key = given.pop(STEP, None)
        if others is not None:
            given |= {own: given[n] for n in list(given) for own in others.get(n, ())}
        before = dict(given)
        with Functions(key) as functions:
            for block in blocks:
                block.functions = functions
            outputs = functional_call(model, given, args, named, tie_weights=tied)
        # A model may set its buffers by itself: PyTorch leaves the new ones where it took the old.
        own = {n: value.detach() for n, value in given.items() if value is not before[n]}
        # Models of Hugging Face return a record of all sorts of things.
        return _in_batch(getattr(outputs, "logits", outputs), x), {**own, **taken(norms)}

    return forward


def _in_batch(outputs: Any, x: Tree) -> Any:
    """Of one sample alone, ``squeeze()`` takes away the dimension of the batch too. (More than one
    that is left may be as meant: a model can give tokens x numbers for a batch of any size.)"""
    alone = leaves(x)[0].shape[:1] == (1,)
    lost = alone and isinstance(outputs, Tensor) and outputs.ndim < 2 and 1 not in outputs.shape
    return outputs[None] if lost else outputs

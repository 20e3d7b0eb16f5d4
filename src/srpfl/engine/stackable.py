"""Whether clients' models can be trained as one stack."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from srpfl.core.rules import SGD, Rule
from srpfl.core.split import Params, state_of, trainable
from srpfl.core.trees import Tree, gathered, leaves, mapped, take
from srpfl.data.base import Federated, Samples
from srpfl.data.padded import MASK
from srpfl.engine.batchnorm import present_names, statistics_names
from srpfl.engine.capturable import READS
from srpfl.engine.dropout import key_names
from srpfl.engine.fit import draws_itself, layer_in_words, probe, ready, reason
from srpfl.engine.hugging_face import let_masks_be_stacked
from srpfl.engine.layers import with_stackable_layers
from srpfl.engine.modes import set_modes
from srpfl.engine.precision import STEP, called
from srpfl.engine.recomputed import with_recomputed_blocks
from srpfl.engine.steps import Batch, Carried, Objective, flat, step_of_each, take_step
from srpfl.engine.store import tensors
from srpfl.engine.threads import one_thread, telling_slow_operations, uncompiled
from srpfl.errors import ConfigError, SrpflError
from srpfl.task import Task


def check_stackable(model: nn.Module, data: Federated, task: Task) -> None:
    """Refuse a model that cannot be trained as a stack of clients. It is tried out with a step of
    two clients, with a real sample, on a copy."""
    drawing = draws_itself(model, data)
    if drawing is not None:
        raise ConfigError(
            f"the vectorised engine cannot train {drawing} that draws random numbers by itself: "
            "use engine='loop' or 'workers'"
        )
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and not module.track_running_stats:
            raise ConfigError(
                f"the vectorised engine cannot train '{name}' ({type(module).__name__}) as a stack "
                "of clients (without running statistics a sample depends on its batch also in "
                "tests): use engine='loop' or 'workers'"
            )
        if module._backward_hooks or module._backward_pre_hooks:
            raise ConfigError(
                f"the vectorised engine cannot train '{name}' ({type(module).__name__}) as a stack "
                "of clients (its hooks on gradients would not be called): use engine='loop' or "
                "'workers'"
            )
    let_masks_be_stacked()
    net = with_recomputed_blocks(with_stackable_layers(ready(model)))
    at = _Entered(net)
    try:
        with one_thread(), uncompiled(), telling_slow_operations():
            _check_samples_are_apart(net, data, task)
            _check_filling_is_not_seen(net, data)
            for common in (False, True):
                _try_step(net, data, task, common)
    except SrpflError:  # of our own checks, and of the data's
        raise
    except Exception as error:  # whatever PyTorch cannot do with the model
        raise ConfigError(
            f"the vectorised engine cannot train {at.last} as a stack of clients "
            f"({reason(error)}): use engine='loop' or 'workers'"
        ) from error


def _try_step(net: nn.Module, data: Federated, task: Task, common: bool) -> None:
    """A step of two clients, each with one real sample twice, and what they make of it in a test.
    Buffers may be each client's own, or common to all."""
    two, state = probe(data), state_of(net)
    updated = set_modes(net, [name for name, _ in net.named_parameters()], ())
    names = [name for name in statistics_names(net) if name.rpartition(".")[0] in updated]
    stack = {name: value.expand(2, *value.shape) for name, value in state.items()}
    own = {name: stack.pop(name) for name in trainable(net)}
    carried = Carried(own, {}, {name: stack.pop(name) for name in names})
    frozen, shared = ({}, {name: state[name] for name in stack}) if common else (stack, {})
    keys, present = tuple(key_names(net)), tuple(present_names(net))
    objective = Objective(called(net), task, keys, present, tuple(names))
    x, y = gathered(torch.stack, [tuple(two), tuple(two)])
    none = torch.zeros(2, dtype=torch.int64)
    batch = Batch(x, y, torch.full((2, 2), 0.5), none, none == 0)
    take_step(objective, SGD(), carried, frozen, shared, batch)
    net.eval()  # where statistics stay as they are
    with torch.no_grad():
        tested = replace(objective, updates=())
        tested.outputs({**frozen, **carried.statistics, **own}, shared, x, none)


def _check_samples_are_apart(net: nn.Module, data: Federated, task: Task) -> None:
    """Batches of a stack are filled up with samples that do not count, and only our layers know
    which: what a model, a loss or a score makes of a sample may not depend on the others, nor on
    how many they are. Nor may a model set buffers or weights by itself, which would be those of
    all clients."""
    told = _all_values(net)
    x, y = _first_samples(data)
    x = data.transform.prepare(x)
    versions = {name: value._version for name, value in told.items()}
    batches = [torch.tensor(batch) for batch in ([0, 1], [0, 0], [0, 1, 1])]
    noted: set[str] = set()

    def outputs_of(batch: Tensor) -> Tree:
        there = dict.fromkeys(present_names(net), torch.arange(len(batch)) == 0)
        outputs, statistics = called(net)({**told, **there}, take(x, batch))
        noted.update(statistics)
        return outputs

    with torch.no_grad():
        net.train()
        trained = [outputs_of(batch) for batch in batches]
        alone = _alone(outputs_of, trained[0])
        with _NothingRead():  # type: ignore[no-untyped-call]
            losses = [task.loss(out, y[b]) for out, b in zip(trained, batches, strict=True)]
        net.eval()
        tested = [outputs_of(batch) for batch in batches]
        scores = [task.score(out, y[b]) for out, b in zip(tested, batches, strict=True)]
    own = sorted(noted - set(statistics_names(net)))
    own += [name for name in told if told[name]._version != versions[name]]
    if own:
        raise ConfigError(
            f"the vectorised engine cannot train a model that writes to its '{own[0]}' by "
            "itself: use engine='loop' or 'workers'"
        )
    if not (_first_is_same([*trained, *alone]) and _first_is_same(tested)):
        raise ConfigError(
            "the vectorised engine cannot train a model in which the samples of a batch depend on "
            "each other (other than by PyTorch's BatchNorm) or on how many they are: use "
            "engine='loop' or 'workers'"
        )
    for what, found in (("loss", losses), ("score", scores)):
        if not _first_is_same(found):
            raise ConfigError(
                f"the vectorised engine cannot train with the {what} of {type(task).__name__} (it "
                "depends on the other samples of a batch, or on how many they are): use "
                "engine='loop' or 'workers'"
            )


def _alone(outputs_of: Callable[[Tensor], Tree], like: Tree) -> list[Tree]:
    """What is made of one sample that is all of a batch, as models may look at; nothing where a
    model does not take one."""
    try:
        outputs = outputs_of(torch.tensor([0]))
    except Exception:  # in the loop it does not, either
        return []
    pairs = zip(leaves(outputs), leaves(like), strict=True)
    return [outputs] if all(a.shape == b[:1].shape for a, b in pairs) else []


def _check_filling_is_not_seen(net: nn.Module, data: Federated) -> None:
    """Texts are filled up to the longest of a batch; here to the longest of all batches of a stack.
    What becomes of a text may not depend on that."""
    x = _texts(data)
    if x is None:
        return
    told = {
        **_all_values(net),
        **dict.fromkeys(present_names(net), torch.ones(2, dtype=torch.bool)),
    }
    short = data.transform.prepare(take(x, [0, 0]))
    filled_up = take(data.transform.prepare(take(x, [0, 0, 1])), slice(0, 2))
    for training in (True, False):
        net.train(training)
        with torch.no_grad():
            passes = [called(net)(told, each)[0] for each in (short, filled_up)]
        if not _first_is_same(passes):
            raise ConfigError(
                "the vectorised engine cannot train a model in which a text's outputs depend on "
                f"what it is filled up with, beyond its {MASK}: use engine='loop' or 'workers'"
            )


def _all_values(net: nn.Module) -> Params:
    told: Params = {**dict(net.named_buffers()), **state_of(net)}
    return told | dict.fromkeys((*key_names(net), STEP), torch.zeros((), dtype=torch.int64))


def _first_is_same(passes: Sequence[Tree]) -> bool:
    first, *others = (leaves(each) for each in passes)
    pairs = [pair for other in others for pair in zip(first, other, strict=True)]
    return all(
        a[0].shape == b[0].shape
        and torch.allclose(a[0], b[0], rtol=1e-3, atol=1e-5, equal_nan=True)
        for a, b in pairs
    )


class _NothingRead(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is on, nobody may look at values: those of a stack are all clients'."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in READS:
            raise ConfigError(
                "the vectorised engine cannot train with a loss that looks at values (as .item() "
                "does): use engine='loop' or 'workers'"
            )
        return func(*args, **(kwargs or {}))


def _first_samples(data: Federated) -> tuple[Tree, Tensor]:
    """Two samples, of two clients if the first has only one."""
    some = [take(tuple(data.train(c)), slice(0, 2)) for c in range(min(2, data.clients))]
    both = gathered(np.concatenate, [*some, some[0]])
    return tensors(Samples(*take(both, slice(0, 2))), torch.device("cpu"))


def _texts(data: Federated) -> Tree | None:
    """The shortest and the longest text of some clients, if the samples are texts."""
    first = data.train(0).x
    if not isinstance(first, Mapping) or MASK not in first:
        return None
    some = [first, *(data.train(client).x for client in range(1, min(8, data.clients)))]
    every = gathered(np.concatenate, some)
    lengths = every[MASK].reshape(len(every[MASK]), -1).sum(1)
    two = take(every, [int(lengths.argmin()), int(lengths.argmax())])
    return mapped(lambda values: torch.from_numpy(np.ascontiguousarray(values)), two)


class _Entered:
    """The layer that a model was in last, to name the one that failed."""

    def __init__(self, model: nn.Module) -> None:
        self.last = "this model"
        for name, module in model.named_modules():
            if name and not list(module.children()):
                module.register_forward_pre_hook(self._noting(name))

    def _noting(self, name: str) -> Any:
        def note(module: nn.Module, _inputs: Any) -> None:
            self.last = layer_in_words(name, module)

        return note


class _Anything(dict[str, Any]):
    """Slots of any name, with the tensors of parameters, and others of any name."""

    def __init__(self, usual: Any, known: Params | None = None) -> None:
        super().__init__(known or {})
        self.usual = usual

    def __missing__(self, name: str) -> Any:
        return self.usual


_mapped: dict[str, str | None] = {}  # by rule: why it cannot be mapped over clients, if it cannot


def check_rule(rule: Rule, names: Iterable[str] = ("layer.weight", "layer.bias")) -> None:
    """Refuse a rule that cannot be carried out for a stack of clients: one that branches on values,
    or writes to what it is given."""
    key = f"{type(rule).__module__}.{rule!r}"
    if key not in _mapped:
        _mapped[key] = _why_not(rule, names)
    if _mapped[key] is not None:
        raise ConfigError(
            f"the rule {type(rule).__name__} cannot be carried out for a stack of clients "
            f"({_mapped[key]}): use engine='loop' or 'workers'"
        )


def _why_not(rule: Rule, names: Iterable[str]) -> str | None:
    params = {name: torch.ones(2, 1, 1) for name in names}

    def gradients(at: Params) -> tuple[Tensor, Params]:
        return torch.ones(2), {name: value.clone() for name, value in at.items()}

    def start(params: Params) -> Any:
        return rule.start(params, _Anything(_Anything(torch.ones(()), params)))

    try:
        given = params, torch.vmap(start)(params)
        versions = [tensor._version for tensor in flat(given)]
        step_of_each(rule, gradients, *given)
    except Exception as error:
        return reason(error)
    if [tensor._version for tensor in flat(given)] != versions:  # also of clients that are through
        return "it writes to the weights or the state that it is given"
    return None

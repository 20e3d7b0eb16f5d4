"""One step of a stack of clients, written down once as plain tensor operations.

A step is a forward pass under ``torch.vmap``, a gradient, and a rule. Doing these again for every
step costs more than the arithmetic when models are small, so the step is traced: what remains is a
list of tensor operations without dispatch through vmap and autograd. The list can be run as it is,
compiled, or captured in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from srpfl.core.rules import SGD, LossAndGradient, Rule, RuleState
from srpfl.core.slots import Slots
from srpfl.core.split import Params
from srpfl.core.trees import Tree, mapped
from srpfl.engine.precision import STEP, Forward
from srpfl.errors import ConfigError
from srpfl.task.base import Losses, Task

aten = torch.ops.aten
# The same operations by functions that are quicker to call from Python.
QUICKER: dict[Any, Callable[..., Any]] = {
    aten.add.Tensor: torch.add,
    aten.baddbmm.default: torch.baddbmm,
    aten.bmm.default: torch.bmm,
    aten.expand.default: torch.Tensor.expand,
    aten.mul.Tensor: torch.mul,
    aten.permute.default: torch.permute,
    aten.relu.default: torch.relu,
    aten.sub.Tensor: torch.sub,
    aten.sum.default: torch.sum,
    aten.sum.dim_IntList: torch.sum,
    aten.transpose.int: torch.transpose,
    aten.unsqueeze.default: torch.unsqueeze,
    aten.view.default: torch.Tensor.view,
}


LossesAndGradients = Callable[[Params], tuple[Tensor, Params]]  # of each client of a stack


class Batch(NamedTuple):
    """What a stack of clients sees in one step."""

    x: Tree  # clients x batch x ...
    y: Tensor  # clients x batch x ...
    weights: Tensor  # clients x batch: one over the size of the client's batch, 0 for padding
    keys: Tensor  # clients: of the dropout masks
    active: Tensor  # clients: whether this one takes the step at all


class Carried(NamedTuple):
    """What changes from step to step."""

    params: Params
    moments: RuleState
    statistics: Params = {}  # noqa: RUF012 - running ones, of normalisation layers


@dataclass(frozen=True)
class Objective:
    """A gradient for a stack of clients. ``forward`` is for one client."""

    forward: Forward
    task: Task
    keys: tuple[str, ...] = ()  # names under which the model takes its dropout keys
    present: tuple[str, ...] = ()  # names under which it is told which samples are no padding
    updates: tuple[str, ...] = ()  # the statistics that change
    head: str | None = None  # the linear layer that all of the objective is, if it is one

    def outputs(
        self, stack: Params, common: Params, x: Tree, keys: Tensor, weights: Tensor | None = None
    ) -> tuple[Any, Params]:
        """Outputs of each client of the stack on its own inputs, and its new statistics."""

        def one(own: Params, x: Tree, key: Tensor, *there: Tensor) -> tuple[Any, Params]:
            told = dict.fromkeys((*self.keys, STEP), key)
            if there:
                told |= dict.fromkeys(self.present, there[0])
            outputs, statistics = self.forward({**common, **own, **told}, x)
            return outputs, {name: statistics[name] for name in self.updates}

        there = () if weights is None or not self.present else (weights > 0,)
        found: tuple[Any, Params] = torch.vmap(one)(stack, x, keys, *there)
        return found

    def losses_and_gradient(
        self, params: Params, statistics: Params, frozen: Params, common: Params, batch: Batch
    ) -> tuple[Tensor, Params, Params]:
        """Each client's loss, its gradient by the parameters in ``params``, its statistics."""
        leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
        own = {**frozen, **statistics, **leaves}
        outputs, after = self.outputs(own, common, batch.x, batch.keys, batch.weights)
        flat = mapped(lambda tensor: tensor.flatten(0, 1), outputs)
        losses = _by_client(self.task.loss(flat, batch.y.flatten(0, 1)), batch.weights)
        # Clients share no parameters here, so the gradient of the sum is each client's own.
        grads = gradient_of(losses.sum(), leaves)
        after = {name: value.detach() for name, value in after.items()}
        return losses.detach(), grads, after


def gradient_of(loss: Tensor, leaves: Params) -> Params:
    """What the model does not use has no gradient, and stays but for weight decay; but it must use
    something of what is trained."""
    if not loss.requires_grad:
        first = f"'{next(iter(leaves))}'" + (" and others" if len(leaves) > 1 else "")
        raise ConfigError(
            f"the loss does not depend on what a step is to train ({first}): freeze what the model "
            "does not use with requires_grad_(False), or choose another personal part"
        )
    values = list(leaves.values())
    grads = torch.autograd.grad(loss, values, allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, grads, strict=True))


def _by_client(each: Losses, weights: Tensor) -> Tensor:
    """Every client's mean loss, from those of all samples."""
    if not isinstance(each, tuple):
        return (each.reshape(weights.shape) * weights).sum(1)
    there = weights > 0
    sums, parts = (torch.where(there, part.reshape(weights.shape), 0) for part in each)
    return sums.sum(1) / parts.sum(1).clamp(min=1e-12)


def take_step(
    objective: Objective, rule: Rule, carried: Carried, frozen: Params, common: Params, batch: Batch
) -> tuple[Carried, Tensor]:
    """One step of every client that is still active, and the losses before it."""
    noted: list[Tensor] = []
    statistics = carried.statistics

    def gradients(params: Params) -> tuple[Tensor, Params]:
        nonlocal statistics
        losses, grads, statistics = objective.losses_and_gradient(
            params, statistics, frozen, common, batch
        )
        noted.append(losses)
        return losses, grads

    params, moments = step_of_each(rule, gradients, carried.params, carried.moments)
    return Carried(params, moments, statistics), noted[0]


def step_of_each(
    rule: Rule, gradients: LossesAndGradients, params: Params, moments: RuleState
) -> tuple[Params, RuleState]:
    """A rule's step for a stack of clients. The rule sees one client; only its gradient is that of
    all of them at once."""

    def one(params: Params, moments: RuleState) -> tuple[Params, RuleState]:
        def both(at: Params) -> tuple[Tensor, Params]:
            loss, *found = _OfAll.apply(gradients, tuple(at), *at.values())  # type: ignore[no-untyped-call]
            return loss, dict(zip(at, found, strict=True))

        return rule.step(LossAndGradient(both), params, moments)

    stepped: tuple[Params, RuleState] = torch.vmap(one)(params, moments)
    return stepped


class _OfAll(torch.autograd.Function):
    """The way out of ``vmap``: what one client asks for is computed for the whole stack."""

    @staticmethod
    def forward(gradients: LossesAndGradients, names: tuple[str, ...], *values: Tensor) -> Any:
        raise AssertionError("a stack's gradient is asked for under vmap only")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, ...],
        gradients: LossesAndGradients,
        names: tuple[str, ...],
        *values: Tensor,
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        rows = info.batch_size
        stack = {
            name: value.expand(rows, *value.shape) if at is None else value.movedim(at, 0)
            for name, value, at in zip(names, values, in_dims[2:], strict=True)
        }
        losses, grads = gradients(stack)
        return (losses, *(grads[name] for name in names)), (0,) * (1 + len(names))


def start_of_each(rule: Rule, params: Params, common: Slots, own: Slots) -> RuleState:
    """A rule's state for a stack of clients before the first step: ``common`` slots are the same
    for all of them, ``own`` ones have a row for each."""
    if type(rule) is SGD:  # whose state looks the same for one and for many
        return rule.start(params, {})

    def one(params: Params, own: Slots) -> RuleState:
        return rule.start(params, {**common, **own})

    started: RuleState = torch.vmap(one)(params, own)
    return started


def only_active(active: Tensor, after: Carried, before: Carried) -> Carried:
    """Clients whose work is over keep what they have."""

    def keep(new: Params, old: Params) -> Params:
        return {
            name: torch.where(active.reshape(-1, *[1] * (value.ndim - 1)), value, old[name])
            for name, value in new.items()
        }

    moments = {slot: keep(new, before.moments[slot]) for slot, new in after.moments.items()}
    statistics = keep(after.statistics, before.statistics)
    return Carried(keep(after.params, before.params), moments, statistics)


def advance(
    objective: Objective, rule: Rule, now: Carried, frozen: Params, common: Params, batch: Batch
) -> tuple[Carried, Tensor]:
    """:func:`take_step` for a stack in which some clients may be through."""
    after, losses = take_step(objective, rule, now, frozen, common, batch)
    return only_active(batch.active, after, now), losses


def traced(function: Callable[..., Any], *shape: Any) -> fx.GraphModule:
    """A function of nested dicts and tuples as one from :func:`flat` tensors to flat tensors."""

    def unnested(*tensors: Tensor) -> list[Tensor]:
        return flat(function(*filled(shape, tensors)))

    with torch.enable_grad():
        return _simplified(make_fx(unnested)(*flat(shape)))


def flat(tree: Any) -> list[Tensor]:
    """The tensors of nested dicts and tuples, in a fixed order."""
    if isinstance(tree, Tensor):
        return [tree]
    values = tree.values() if isinstance(tree, dict) else tree
    return [tensor for value in values for tensor in flat(value)]


def filled(shape: Any, tensors: Sequence[Tensor]) -> Any:
    """The inverse of :func:`flat`, for the nesting of ``shape``."""
    return _fill(shape, iter(tensors))


def _fill(tree: Any, left: Iterator[Tensor]) -> Any:
    # Not a closure that calls itself: such a circle would keep the tensors until it is collected.
    if isinstance(tree, Tensor):
        return next(left)
    if isinstance(tree, dict):
        return {name: _fill(value, left) for name, value in tree.items()}
    found = [_fill(value, left) for value in tree]
    return type(tree)(*found) if hasattr(tree, "_fields") else tuple(found)


def room_for(carried: Carried) -> Carried:
    """Memory of its own for all of it: a stack may be one tensor seen many times."""
    rooms = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in flat(carried)]
    return filled(carried, rooms)  # type: ignore[no-any-return]


def part_of(tree: Any, index: Any) -> Any:
    """The same nesting, of a part of each tensor."""
    return filled(tree, [tensor[index] for tensor in flat(tree)])


def copy_all(to: Carried, given: Carried) -> None:
    """Write one over the other."""
    for place, tensor in zip(flat(to), flat(given), strict=True):
        place.copy_(tensor)


def _simplified(module: fx.GraphModule) -> fx.GraphModule:
    """Without what only autograd needed, and with a multiply-add as one pass over memory."""
    graph = module.graph
    for node in list(graph.nodes):
        if _does_nothing(node):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    for node in list(graph.nodes):
        if node.target in (aten.add.Tensor, aten.sub.Tensor) and not node.kwargs:
            _fuse_scaling(node)
    graph.eliminate_dead_code()
    module.recompile()
    return module


def called_quickly(module: fx.GraphModule) -> fx.GraphModule:
    """For small models the calls cost as much as the arithmetic."""
    for node in module.graph.nodes:
        node.target = QUICKER.get(node.target, node.target)
    module.recompile()
    return module


def _does_nothing(node: fx.Node) -> bool:
    if node.target is aten.detach.default:
        return True
    if node.target is aten.permute.default:
        axes = node.args[1]
        return list(axes) == list(range(len(axes)))  # type: ignore[arg-type]
    reshapes = (aten.view.default, aten._unsafe_view.default, aten.expand.default)
    if node.target not in reshapes:
        return False
    given: Any = node.args[0]
    return bool(given.meta["val"].shape == node.meta["val"].shape)


def _fuse_scaling(node: fx.Node) -> None:
    """a + b·scalar and a − b·scalar in one operation."""
    places = (1, 0) if node.target is aten.add.Tensor else (1,)
    for place in places:
        scaled, other = node.args[place], node.args[1 - place]
        if (
            isinstance(scaled, fx.Node)
            and isinstance(other, fx.Node)
            and scaled.target is aten.mul.Tensor
            and isinstance(scaled.args[1], float)
            and len(scaled.users) == 1
        ):
            node.args = (other, scaled.args[0])
            node.kwargs = {"alpha": scaled.args[1]}
            return

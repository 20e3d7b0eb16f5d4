"""One step of a stack of clients, written down once as plain tensor operations.

A step is a forward pass under ``torch.vmap``, a gradient, and a rule. Doing these anew for every
step costs more than the arithmetic when models are small, so the step is traced: what remains is a
list of tensor operations without dispatch through vmap and autograd. The list can be run as it is,
compiled, or captured in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from srpfl.engine.base import Loss
from srpfl.engine.precision import Forward
from srpfl.local import Rule, RuleState
from srpfl.split import Params

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


class Batch(NamedTuple):
    """What a stack of clients sees in one step."""

    x: Tensor  # clients x batch x ...
    y: Tensor  # clients x batch
    weights: Tensor  # clients x batch: one over the size of the client's batch, 0 for padding
    keys: Tensor  # clients: of the dropout masks
    active: Tensor  # clients: whether this one takes the step at all


@dataclass(frozen=True)
class Problem:
    """A gradient for a stack of clients. ``forward`` is for one client."""

    forward: Forward
    loss: Loss
    keys: tuple[str, ...] = ()  # names under which the model takes its dropout keys
    head: str | None = None  # the name of the linear layer that all of the problem is, if it is one

    def outputs(self, stack: Params, common: Params, x: Tensor, keys: Tensor) -> Tensor:
        """Outputs of each client of the stack on its own inputs."""

        def one(own: Params, x: Tensor, key: Tensor) -> Tensor:
            return self.forward({**common, **own, **dict.fromkeys(self.keys, key)}, x)

        outputs: Tensor = torch.vmap(one)(stack, x, keys)
        return outputs

    def losses_and_gradient(
        self, params: Params, frozen: Params, common: Params, batch: Batch
    ) -> tuple[Tensor, Params]:
        """Each client's loss, and its gradient by the parameters in ``params``."""
        leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
        outputs = self.outputs({**frozen, **leaves}, common, batch.x, batch.keys)
        each = self.loss(outputs.flatten(0, 1), batch.y.flatten()).reshape(batch.weights.shape)
        losses = (each * batch.weights).sum(1)
        # Clients share no parameters here, so the gradient of the sum is each client's own.
        # What the model does not use has none; zeros stand for it.
        values = list(leaves.values())
        grads = torch.autograd.grad(losses.sum(), values, allow_unused=True, materialize_grads=True)
        return losses.detach(), dict(zip(leaves, grads, strict=True))


class Carried(NamedTuple):
    """What changes from step to step."""

    params: Params
    moments: RuleState


def take_step(
    problem: Problem, rule: Rule, carried: Carried, frozen: Params, common: Params, batch: Batch
) -> tuple[Carried, Tensor]:
    """One step of every client that is still active, and the losses before it."""
    noted: list[Tensor] = []

    def gradient(params: Params) -> Params:
        losses, grads = problem.losses_and_gradient(params, frozen, common, batch)
        noted.append(losses)
        return grads

    params, moments = rule.step(gradient, carried.params, carried.moments)
    return Carried(params, moments), noted[0]


def only_active(active: Tensor, after: Carried, before: Carried) -> Carried:
    """Clients whose work is over keep their parameters and their optimiser's state."""

    def keep(new: Params, old: Params) -> Params:
        return {
            name: torch.where(active.reshape(-1, *[1] * (value.ndim - 1)), value, old[name])
            for name, value in new.items()
        }

    moments = {slot: keep(new, before.moments[slot]) for slot, new in after.moments.items()}
    return Carried(keep(after.params, before.params), moments)


def advance(
    problem: Problem, rule: Rule, now: Carried, frozen: Params, common: Params, batch: Batch
) -> tuple[Carried, Tensor]:
    """:func:`take_step` for a stack in which some clients may be through."""
    after, losses = take_step(problem, rule, now, frozen, common, batch)
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
    left = iter(tensors)

    def fill(tree: Any) -> Any:
        if isinstance(tree, Tensor):
            return next(left)
        if isinstance(tree, dict):
            return {name: fill(value) for name, value in tree.items()}
        return type(tree)(*map(fill, tree)) if hasattr(tree, "_fields") else tuple(map(fill, tree))

    return fill(shape)


def room_for(carried: Carried) -> Carried:
    """Memory of its own for all of it: a stack may be one tensor seen many times."""
    rooms = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in flat(carried)]
    return filled(carried, rooms)  # type: ignore[no-any-return]


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

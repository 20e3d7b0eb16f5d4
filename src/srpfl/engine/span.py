"""A first layer that is trained without its weights, in the span of a client's own samples.

A step adds to the weights of a linear layer a product of gradients and inputs. Where the inputs are
the samples X themselves, the weights are c·W₀ + Aᵀ·X at any time, with a row of A for each sample
and a number c that falls with weight decay. A step then needs from X only its inner products, which
are computed once, and it changes A, which is much smaller than W as long as a client has far fewer
samples than a sample has numbers. The arithmetic is the same, in another order.
"""

from __future__ import annotations

import copy
import operator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from srpfl.core.rules import SGD, HessianFreeMAML, Rule
from srpfl.core.split import Params
from srpfl.core.trees import Tree
from srpfl.engine.features import Once
from srpfl.engine.layer_graph import fixed_graph, module_of
from srpfl.engine.layers import is_plain_linear, shared_elsewhere
from srpfl.engine.precision import called
from srpfl.engine.steps import Batch, Carried, Objective

LINEAR = (SGD, HessianFreeMAML)  # rules that do to sums of gradients what they do to the gradients
# Measured on CPUs: the smallest layer that gains, and the multiplications that take as long as one
# weight's update.
LEAST, UPDATE = 10_000, 15
SUMS = "sums of the first layer"


@dataclass(frozen=True)
class FirstLayer:
    """A model of which the first thing is a linear layer on the flat inputs."""

    weight: str  # its name
    inputs: int
    outputs: int
    objective: SpannedObjective

    @property
    def scale(self) -> str:
        return self.objective.scale

    def pays(self, samples: int, steps: int, batch: int) -> bool:
        """Whether that many steps save more multiplications than entering and leaving cost."""
        rows = padded(samples)
        saved = steps * (self.inputs - rows) * self.outputs * (2 * batch + UPDATE)
        spent = rows * self.inputs * (2 * self.outputs + rows)
        return self.inputs * self.outputs >= LEAST and saved > spent

    def instead(self, params: Params, samples: int) -> Params:
        """Parameters of a stack, with coefficients of that many samples for the weights."""
        weight = params[self.weight]
        return {**params, self.weight: weight.new_empty(1, padded(samples), self.outputs)}


@dataclass(frozen=True)
class SpannedObjective(Objective):
    """The gradient of a stack of clients by the coefficients A and c of the first layer's weights.

    A sample is its row of the unit matrix, its inner products with all samples, and W₀ times it.
    """

    weight: str = ""

    @property
    def scale(self) -> str:
        return f"{self.weight}.scale"

    def losses_and_gradient(
        self, params: Params, statistics: Params, frozen: Params, common: Params, batch: Batch
    ) -> tuple[Tensor, Params, Params]:
        own = dict(params)
        coefficients, scale = own.pop(self.weight), own.pop(self.scale)
        samples, outputs = coefficients.shape[1:]
        chosen, products, before = torch.split(batch.x, [samples, samples, outputs], 2)
        own[SUMS] = torch.baddbmm(before * scale, products, coefficients)
        losses, grads, after = super().losses_and_gradient(own, statistics, frozen, common, batch)
        grads[self.weight] = torch.bmm(chosen.mT, grads.pop(SUMS))
        grads[self.scale] = torch.zeros_like(scale)
        return losses, {name: grads[name] for name in params}, after


class Span(NamedTuple):
    """What stays the same of some clients' first layers during a phase."""

    first: FirstLayer
    x: Tensor  # clients x samples x inputs, zeros where a client has no more
    weight: Tensor  # clients x outputs x inputs: W₀
    once: Once  # what :class:`SpannedObjective` sees of the samples

    @classmethod
    def of(
        cls, first: FirstLayer, weight: Tensor, x: Tensor, sizes: list[int], offset: int
    ) -> Span:
        """For clients with these many samples each of ``x``, which is all of theirs in turn."""
        most = padded(max(sizes))
        stacked = torch.stack(
            [F.pad(own, (0, 0, 0, most - len(own))) for own in torch.split(x, sizes)]
        )
        unit = torch.eye(most, dtype=x.dtype, device=x.device).expand(len(sizes), -1, -1)
        products, before = torch.bmm(stacked, stacked.mT), torch.bmm(stacked, weight.mT)
        rows = torch.cat([unit, products, before], 2)
        theirs = torch.cat([own[:size] for own, size in zip(rows, sizes, strict=True)])
        return cls(first, stacked, weight, Once(theirs, offset))

    def enter(self, given: Carried) -> Carried:
        """With coefficients, of W₀ itself, instead of the weights."""
        clients, samples, _ = self.x.shape

        def replaced(params: Params, scale: float) -> Params:
            rest = {n: v.clone() for n, v in params.items() if n != self.first.weight}
            rest[self.first.weight] = self.x.new_zeros(clients, samples, self.first.outputs)
            rest[self.first.scale] = self.x.new_full((clients, 1, 1), scale)
            return rest

        moments = {slot: replaced(values, 0.0) for slot, values in given.moments.items()}
        return Carried(replaced(given.params, 1.0), moments)

    def leave(self, carried: Carried, to: Carried) -> None:
        """Write all of it, with weights instead of coefficients."""
        pairs = [(carried.params, to.params)]
        pairs += [(values, to.moments[slot]) for slot, values in carried.moments.items()]
        for params, places in pairs:
            for name, place in places.items():
                if name != self.first.weight:
                    place.copy_(params[name])
            place = places[self.first.weight]
            torch.mul(self.weight, params[self.first.scale], out=place)
            place.baddbmm_(params[self.first.weight].mT, self.x)


def spans(rule: Rule) -> bool:
    """Whether the rule keeps weights in the span."""
    return type(rule) in LINEAR


def padded(samples: int) -> int:
    """So many rows of coefficients, so that there are few different shapes.

    >>> [padded(count) for count in (5, 64, 75, 130)]
    [16, 64, 80, 160]
    """
    step = max(16, 1 << max(0, (samples - 1).bit_length() - 3))
    return -(-samples // step) * step


def first_layer(model: nn.Module, objective: Objective) -> FirstLayer | None:
    """The model's first layer, or None where it does not begin with a linear one."""
    name = _first_linear(model)
    if name is None:
        return None
    layer = model.get_submodule(name)
    assert isinstance(layer, nn.Linear)
    rest = copy.deepcopy(model).train()
    rest.set_submodule(name, _Shift(layer.bias))
    forward = called(rest)

    def from_sums(params: Params, _x: Tree) -> tuple[Tensor, Params]:
        params = dict(params)
        return forward(params, params.pop(SUMS))

    weight = f"{name}.weight"
    spanned = SpannedObjective(from_sums, objective.task, objective.keys, weight=weight)
    return FirstLayer(weight, layer.in_features, layer.out_features, spanned)


def _first_linear(model: nn.Module) -> str | None:
    """The name of the linear layer that the model begins with, if it does: the layer must see the
    flat inputs as they are, and nothing else may see them. Read from the model's code."""
    graph = fixed_graph(model)
    if graph is None:
        return None
    given = [node for node in graph.nodes if node.op == "placeholder"]
    if len(given) != 1:
        return None
    node, target = given[0], None
    while target is None:
        users = [user for user in node.users if not _asks_for_size(user)]
        if len(users) != 1:
            return None
        (user,) = users
        module = module_of(user, model)
        if module is not None and is_plain_linear(module) and user.args == (node,):
            target = str(user.target)
        elif not _flattens(user, model):
            return None
        node = user
    layer = model.get_submodule(target)
    calls = [n for n in graph.nodes if module_of(n, model) is layer]
    read = any(n.op == "get_attr" and str(n.target).startswith(f"{target}.") for n in graph.nodes)
    return None if len(calls) != 1 or read or shared_elsewhere(model, layer) else target


def _flattens(node: fx.Node, model: nn.Module) -> bool:
    """Whether a node makes rows of samples, and leaves rows as they are."""
    module = module_of(node, model)
    if module is not None:
        rows = isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) == (1, -1)
        return rows or type(module) is nn.Identity
    rest = (*node.args[1:], *node.kwargs.values())
    if node.target in (torch.flatten, "flatten"):
        return rest in ((1,), (1, -1))
    if node.target in ("view", "reshape", torch.reshape):
        sizes = rest[0] if len(rest) == 1 and isinstance(rest[0], tuple | list) else rest
        return len(sizes) == 2 and bool(sizes[1] == -1) and _is_batch_size(sizes[0])
    return False


def _asks_for_size(node: fx.Node) -> bool:
    shape = node.target is getattr and node.args[1:] == ("shape",)
    return node.target in ("size", len) or shape


def _is_batch_size(node: Any) -> bool:
    if not isinstance(node, fx.Node):
        return False
    if node.target is operator.getitem:
        sizes, place = node.args
        return bool(place == 0) and isinstance(sizes, fx.Node) and _asks_for_size(sizes)
    return node.target is len or (node.target == "size" and node.args[1:] == (0,))


class _Shift(nn.Module):
    """What is left of the layer: its bias."""

    def __init__(self, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.register_parameter("bias", bias)
        self.bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        # A tensor of its own in any case: what comes next may write over it.
        return x.clone() if self.bias is None else x + self.bias

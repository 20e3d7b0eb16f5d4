"""A first layer that is trained without its weights, in the span of a client's own samples.

A step adds to the weights of a linear layer a product of gradients and inputs. Where the inputs are
the samples X themselves, the weights are c·W₀ + Aᵀ·X at any time, with a row of A for each sample
and a number c that falls with weight decay. A step then needs from X only its inner products, which
are computed once, and it changes A, which is much smaller than W as long as a client has far fewer
samples than a sample has numbers. The arithmetic is the same, in another order.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from srpfl.engine.features import Once
from srpfl.engine.layers import is_plain_linear, shared_elsewhere
from srpfl.engine.precision import called
from srpfl.engine.steps import Batch, Carried, Problem
from srpfl.local import SGD, HessianFreeMAML, Rule
from srpfl.split import Params

LINEAR = (SGD, HessianFreeMAML)  # rules that do to sums of gradients what they do to the gradients
# Measured on CPUs: the smallest layer that gains, and the multiplications that take as long as one
# weight's update.
LEAST, UPDATE = 10_000, 15
SUMS = "sums of the first layer"
SCALES = (1.0, 100.0)  # of inputs to try a model with: large ones may be treated otherwise


@dataclass(frozen=True)
class FirstLayer:
    """A model of which the first thing is a linear layer on the flat inputs."""

    weight: str  # its name
    inputs: int
    outputs: int
    problem: SpannedProblem

    @property
    def scale(self) -> str:
        return self.problem.scale

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
class SpannedProblem(Problem):
    """The gradient of a stack of clients by the coefficients A and c of the first layer's weights.

    A sample is its row of the unit matrix, its inner products with all samples, and W₀ times it.
    """

    weight: str = ""

    @property
    def scale(self) -> str:
        return f"{self.weight}.scale"

    def losses_and_gradient(
        self, params: Params, frozen: Params, common: Params, batch: Batch
    ) -> tuple[Tensor, Params]:
        own = dict(params)
        coefficients, scale = own.pop(self.weight), own.pop(self.scale)
        samples, outputs = coefficients.shape[1:]
        chosen, products, before = torch.split(batch.x, [samples, samples, outputs], 2)
        own[SUMS] = torch.baddbmm(before * scale, products, coefficients)
        losses, grads = super().losses_and_gradient(own, frozen, common, batch)
        grads[self.weight] = torch.bmm(chosen.mT, grads.pop(SUMS))
        grads[self.scale] = torch.zeros_like(scale)
        return losses, {name: grads[name] for name in params}


class Span(NamedTuple):
    """What stays the same of some clients' first layers during a phase."""

    first: FirstLayer
    x: Tensor  # clients x samples x inputs, zeros where a client has no more
    weight: Tensor  # clients x outputs x inputs: W₀
    once: Once  # what :class:`SpannedProblem` sees of the samples

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


def first_layer(model: nn.Module, problem: Problem, like: Tensor) -> FirstLayer | None:
    """The model's first layer, or None where it does not begin with a linear one."""
    model.train()
    name, *others = {_first_linear(model, like, scale) for scale in SCALES}
    if name is None or others:
        return None
    layer = model.get_submodule(name)
    assert isinstance(layer, nn.Linear)
    rest = copy.deepcopy(model)
    rest.set_submodule(name, _Shift(layer.bias))
    forward = called(rest)

    def from_sums(params: Params, _x: Tensor) -> Tensor:
        params = dict(params)
        return forward(params, params.pop(SUMS))

    weight = f"{name}.weight"
    spanned = SpannedProblem(from_sums, problem.loss, problem.keys, weight=weight)
    return FirstLayer(weight, layer.in_features, layer.out_features, spanned)


def _first_linear(model: nn.Module, like: Tensor, scale: float) -> str | None:
    """The name of the linear layer that the model begins with, if it does.

    Tried out on a few inputs of that shape, so it holds for models of any make: the layer must see
    the inputs as they are, and the model must do nothing else with them. Inputs and parameters are
    random, because zeros, which many models begin with, would hide what they are multiplied with.
    """
    random = torch.Generator().manual_seed(0)

    def drawn(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=random).to(like)

    params = {name: drawn(value) / 10 for name, value in model.named_parameters()}
    probe = scale * drawn(like)
    try:
        outputs, calls = _calls(model, params, probe.clone())
    except Exception:  # the model does not take any numbers
        return None
    seen = [call for call in calls if not isinstance(call.module, nn.Flatten | nn.Identity)]
    if not seen or not is_plain_linear(seen[0].module) or shared_elsewhere(model, seen[0].module):
        return None
    layer, x, sums = seen[0]
    name = next(name for name, module in model.named_modules() if module is layer)
    alone = sum(call.module is layer for call in calls) == 1
    raw = isinstance(x, Tensor) and torch.equal(x, probe.flatten(1))
    whole = name and alone and raw and _is_all(model, name, params, sums, outputs)
    return name if whole else None


class _Call(NamedTuple):
    module: nn.Module
    x: Any  # the first of its inputs, if there are any
    output: Any


def _calls(model: nn.Module, params: Params, x: Tensor) -> tuple[Tensor, list[_Call]]:
    """The outputs of a model, and the calls of the layers that led to them."""
    calls: list[_Call] = []

    def note(module: nn.Module, inputs: Sequence[Any], output: Any) -> None:
        x = inputs[0] if inputs else None
        # As they are now: what comes later may write over them.
        calls.append(
            _Call(module, *(v.clone() if isinstance(v, Tensor) else v for v in (x, output)))
        )

    leaves = [module for module in model.modules() if not list(module.children())]
    hooks = [leaf.register_forward_hook(note) for leaf in leaves]
    try:
        with torch.no_grad():
            return called(model)(params, x), calls
    finally:
        for hook in hooks:
            hook.remove()


def _is_all(model: nn.Module, layer: str, params: Params, sums: Tensor, outputs: Tensor) -> bool:
    """Whether the model sees nothing of its inputs but that layer's sums."""
    rest = copy.deepcopy(model)
    rest.set_submodule(layer, nn.Identity())
    others = {n: v for n, v in params.items() if n.rpartition(".")[0] != layer}
    try:
        with torch.no_grad():
            return torch.equal(called(rest)(others, sums.clone()), outputs)
    except Exception:  # it asks for inputs of another shape, in whatever way
        return False


class _Shift(nn.Module):
    """What is left of the layer: its bias."""

    def __init__(self, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.register_parameter("bias", bias)
        self.bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        # A tensor of its own in any case: what comes next may write over it.
        return x.clone() if self.bias is None else x + self.bias

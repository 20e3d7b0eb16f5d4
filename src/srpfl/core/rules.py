"""How parameters move, given gradients.

A rule is a pair of pure functions over tensors by name, and sees one client, whichever engine runs
it: an engine that trains many clients as one maps the rule over them. Rules can be put inside one
another: ``Clipped(rule=SGD())``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from srpfl.core.fields import check_fields
from srpfl.core.slots import Slots
from srpfl.core.split import Params
from srpfl.errors import ConfigError

Gradient = Callable[[Params], Params]  # the gradient of this step's batch at the given parameters
RuleState = dict[str, Params]  # by the state's name ("momentum"), then by the parameter's
# What every rule is given, beside the algorithm's own slots.
SENT, PERSONAL = "sent", "personal"
ABOUT, STEPS = "about", "steps"  # which client it is, and how many steps it takes in this plan
ROUND = "round"  # about what: rounds that were played before


class Rule(Protocol):
    """How parameters move, given gradients: the paper's generic GRD."""

    def start(self, params: Params, given: Slots) -> RuleState:
        """The state before the first step. ``given`` holds what the client had before it began:
        the shared part as it was sent, its personal part, and the algorithm's slots."""
        ...

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        """New parameters and state; the inputs stay as they are."""
        ...


LARGEST, LARGEST_DECAY = 1e30, 1e6  # their product is still a number in single precision


def _check_rates(lr: float, weight_decay: float) -> None:
    if not (math.isfinite(lr) and lr > 0):
        raise ConfigError(f"the learning rate must be a positive, finite number, not {lr}")
    if not (math.isfinite(weight_decay) and weight_decay >= 0):
        raise ConfigError(f"weight decay must be zero or a positive number, not {weight_decay}")
    if lr > LARGEST:
        raise ConfigError(f"the learning rate must be at most {LARGEST:g}, not {lr:g}")
    if weight_decay > LARGEST_DECAY:
        raise ConfigError(f"weight decay must be at most {LARGEST_DECAY:g}, not {weight_decay:g}")


@dataclass(frozen=True, kw_only=True)
class SGD:
    """Stochastic gradient descent with momentum; weight decay spares the biases."""

    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        check_fields(self)
        _check_rates(self.lr, self.weight_decay)
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"momentum must be at least 0 and below 1, not {self.momentum}")

    def start(self, params: Params, given: Slots) -> RuleState:
        if self.momentum == 0:
            return {}
        return {"momentum": {name: torch.zeros_like(value) for name, value in params.items()}}

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        moves = decayed(gradient(params), params, self.weight_decay)
        if self.momentum > 0:
            velocity = state["momentum"]
            moves = {name: velocity[name] * self.momentum + g for name, g in moves.items()}
            state = {"momentum": moves}
        return {name: params[name] - self.lr * move for name, move in moves.items()}, state


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam, with the weight decay of :class:`SGD` (added to the gradient, not to biases)."""

    lr: float = 0.001
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        check_fields(self)
        _check_rates(self.lr, self.weight_decay)

    def start(self, params: Params, given: Slots) -> RuleState:
        return {
            "first": {name: torch.zeros_like(value) for name, value in params.items()},
            "second": {name: torch.zeros_like(value) for name, value in params.items()},
            # One count per parameter, shaped to broadcast over a stack of clients as well.
            "count": {name: value.new_zeros([1] * value.ndim) for name, value in params.items()},
        }

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        one, two = self.betas
        grads = decayed(gradient(params), params, self.weight_decay)
        first = {k: state["first"][k] * one + g * (1 - one) for k, g in grads.items()}
        second = {k: state["second"][k] * two + g * g * (1 - two) for k, g in grads.items()}
        count = {k: state["count"][k] + 1 for k in grads}
        moved = {
            k: params[k]
            - self.lr
            * (first[k] / (1 - one ** count[k]))
            / ((second[k] / (1 - two ** count[k])).sqrt() + self.eps)
            for k in grads
        }
        return moved, {"first": first, "second": second, "count": count}


@dataclass(frozen=True, kw_only=True)
class HessianFreeMAML:
    """One step of HF-MAML: the Hessian enters as a central difference of gradients.

    Every gradient of a step is taken on that step's batch.
    """

    alpha: float = 0.01
    beta: float = 0.1
    delta: float = 0.001

    def __post_init__(self) -> None:
        check_fields(self)
        _check_rates(self.alpha, 0.0)
        _check_rates(self.beta, 0.0)
        if not (math.isfinite(self.delta) and self.delta > 0):
            raise ConfigError(f"delta must be a positive number, not {self.delta}")

    def start(self, params: Params, given: Slots) -> RuleState:
        return {}

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        adapted = gradient(_shifted(params, gradient(params), -self.alpha))  # g
        ahead = gradient(_shifted(params, adapted, self.delta))
        behind = gradient(_shifted(params, adapted, -self.delta))
        hvp = {k: (ahead[k] - behind[k]) / (2 * self.delta) for k in params}
        meta = {k: adapted[k] - self.alpha * hvp[k] for k in params}
        return _shifted(params, meta, -self.beta), state


@dataclass(frozen=True, kw_only=True)
class Clipped:
    """Another rule, on gradients of at most this norm over all parameters that a phase trains."""

    rule: Rule = SGD()
    norm: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        if not (math.isfinite(self.norm) and self.norm > 0):
            raise ConfigError(f"the norm to clip at must be a positive number, not {self.norm}")

    def start(self, params: Params, given: Slots) -> RuleState:
        return self.rule.start(params, given)

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        def clipped(at: Params) -> Params:
            grads = gradient(at)
            length = torch.stack([grad.square().sum() for grad in grads.values()]).sum().sqrt()
            # The small number is that of torch.nn.utils.clip_grad_norm_.
            scale = (self.norm / (length + 1e-6)).clamp(max=1.0)
            return {name: grad * scale for name, grad in grads.items()}

        return self.rule.step(clipped, params, state)


@dataclass(frozen=True, kw_only=True)
class Proximal:
    """Another rule, with a pull of this strength towards a slot: ∇f(w) + strength·(w − anchor)."""

    rule: Rule = SGD()
    strength: float = 0.1
    towards: str = SENT

    def __post_init__(self) -> None:
        check_fields(self)
        if not (math.isfinite(self.strength) and self.strength >= 0):
            raise ConfigError(f"a pull must be zero or a positive number, not {self.strength}")

    def start(self, params: Params, given: Slots) -> RuleState:
        return {**self.rule.start(params, given), self._key: among(params, given[self.towards])}

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        anchor = state[self._key]

        def pulled(at: Params) -> Params:
            return {
                name: grad + self.strength * (at[name] - anchor[name]) if name in anchor else grad
                for name, grad in gradient(at).items()
            }

        params, after = self.rule.step(pulled, params, state)
        return params, {**after, self._key: anchor}

    @property
    def _key(self) -> str:
        return f"towards {self.towards}"


@dataclass(frozen=True, kw_only=True)
class Corrected:
    """Another rule, with slots added to the gradient and subtracted from it: ∇f(w) + c − c_i."""

    rule: Rule = SGD()
    minus: str
    plus: str | None = None

    def start(self, params: Params, given: Slots) -> RuleState:
        minus = among(params, given[self.minus])
        plus = {} if self.plus is None else given[self.plus]
        shift = {n: plus[n] - value if n in plus else -value for n, value in minus.items()}
        return {**self.rule.start(params, given), self._key: shift}

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        shift = state[self._key]

        def corrected(at: Params) -> Params:
            return {
                name: grad + shift[name] if name in shift else grad
                for name, grad in gradient(at).items()
            }

        params, after = self.rule.step(corrected, params, state)
        return params, {**after, self._key: shift}

    @property
    def _key(self) -> str:
        return f"{self.plus} - {self.minus}"


@dataclass(frozen=True, kw_only=True)
class Scheduled:
    """Another rule, with a learning rate that changes from round to round.

    ``decay`` multiplies it every ``every`` rounds; ``cosine`` lets it fall to ``floor`` times its
    start over so many rounds; ``warmup`` lets it rise over the first ones. They can be combined.

    >>> rule = Scheduled(rule=SGD(lr=0.1), decay=0.5, every=10, warmup=3)
    >>> [round(float(rule.factor(torch.tensor(float(played)))), 2) for played in (0, 1, 2, 9, 10)]
    [0.33, 0.67, 1.0, 1.0, 0.5]
    >>> falling = Scheduled(rule=SGD(lr=0.1), cosine=8, floor=0.2)
    >>> [round(float(falling.factor(torch.tensor(float(played)))), 2) for played in (0, 4, 8, 9)]
    [1.0, 0.6, 0.2, 0.2]
    """

    rule: Rule = SGD()
    decay: float = 1.0
    every: int = 1
    cosine: int | None = None
    floor: float = 0.0
    warmup: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 < self.decay <= 1 or not 0 <= self.floor <= 1:
            raise ConfigError("decay and floor of a learning rate must be fractions up to 1")
        if self.every < 1 or self.warmup < 0 or (self.cosine is not None and self.cosine < 1):
            raise ConfigError("every, cosine and warmup of a learning rate are numbers of rounds")

    def factor(self, played: Tensor) -> Tensor:
        """Of the learning rate, after so many rounds."""
        found = self.decay ** (played / self.every).floor()
        if self.cosine is not None:
            part = (played / self.cosine).clamp(max=1.0)
            found = found * (self.floor + (1 - self.floor) * (1 + (math.pi * part).cos()) / 2)
        return found * ((played + 1) / self.warmup).clamp(max=1.0) if self.warmup else found

    def start(self, params: Params, given: Slots) -> RuleState:
        factor = self.factor(given[ABOUT][ROUND])
        # One for each parameter, shaped to broadcast over a stack of clients as well.
        factors = {n: factor.to(v.dtype).reshape([1] * v.ndim) for n, v in params.items()}
        return {**self.rule.start(params, given), "schedule": factors}

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        factors = state["schedule"]
        moved, after = self.rule.step(gradient, params, state)
        scaled = {n: params[n] + factors[n] * (new - params[n]) for n, new in moved.items()}
        return scaled, {**after, "schedule": factors}


class LossAndGradient:
    """An engine's gradient, for rules that also ask for the loss."""

    def __init__(self, both: Callable[[Params], tuple[Tensor, Params]]) -> None:
        self.both = both

    def __call__(self, params: Params) -> Params:
        return self.both(params)[1]


def loss_at(gradient: Gradient, params: Params) -> Tensor:
    """The loss of this step's batch at the given parameters. A rule that is put inside another,
    which changes the gradient, cannot ask for it."""
    return loss_and_gradient(gradient, params)[0]


def loss_and_gradient(gradient: Gradient, params: Params) -> tuple[Tensor, Params]:
    """Both, for the price of the gradient; the same holds of it."""
    assert isinstance(gradient, LossAndGradient)
    return gradient.both(params)


def among(params: Params, slot: Params) -> Params:
    """The slot's tensors of the parameters that are trained."""
    return {name: slot[name] for name in params if name in slot}


def with_momentum(rule: Rule, momentum: float) -> Rule:
    """The rule with SGD's momentum changed, also where SGD is inside another rule."""
    if isinstance(rule, SGD):
        return replace(rule, momentum=momentum)
    if isinstance(rule, Scheduled):  # of rounds; fine-tuning begins afresh each time
        return with_momentum(rule.rule, momentum)
    if isinstance(rule, Clipped | Proximal | Corrected):
        return replace(rule, rule=with_momentum(rule.rule, momentum))
    return rule


def resumed(started: RuleState, kept: RuleState) -> RuleState:
    """A rule's state in a phase: kept from an earlier phase, or the fresh start."""
    return {
        slot: {name: kept.get(slot, {}).get(name, value) for name, value in tensors.items()}
        for slot, tensors in started.items()
    }


def kept(before: RuleState, after: RuleState) -> RuleState:
    """All of the state so far, with the newest of each."""
    return {slot: {**before.get(slot, {}), **tensors} for slot, tensors in after.items()}


def decayed(grads: Params, params: Params, weight_decay: float) -> Params:
    """Gradients with weight decay added, except on biases."""
    if weight_decay == 0:
        return grads
    return {
        name: grad if is_bias(name) else grad + weight_decay * params[name]
        for name, grad in grads.items()
    }


def is_bias(name: str) -> bool:
    return "bias" in name.rpartition(".")[2]  # also bias_ih_l0, in_proj_bias


def _shifted(params: Params, direction: Params, amount: float) -> Params:
    return {name: value + amount * direction[name] for name, value in params.items()}

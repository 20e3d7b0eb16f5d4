"""What one client does between receiving a model and answering: phases of gradient steps.

A :class:`Plan` is data, so any engine can carry it out, one client after another or many as one.
A rule is a pair of pure functions over tensors by name. Rules work element by element only, so a
rule that is right for one client is right for a stack of clients too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from srpfl.errors import ConfigError, whole
from srpfl.split import Params

Gradient = Callable[[Params], Params]  # the gradient of this step's batch at the given parameters
MOST = 10_000_000  # epochs or steps of a phase; more is a slip of the keyboard
RuleState = dict[str, Params]  # by the state's name ("momentum"), then by the parameter's


class Rule(Protocol):
    """How parameters move, given gradients: the paper's generic GRD."""

    def start(self, params: Params) -> RuleState:
        """The state before the first step."""
        ...

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        """New parameters and state; the inputs stay as they are."""
        ...


@dataclass(frozen=True, kw_only=True)
class SGD:
    """Stochastic gradient descent with momentum; weight decay spares the biases."""

    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        _check_rates(self.lr, self.weight_decay)
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"momentum must be at least 0 and below 1, not {self.momentum}")

    def start(self, params: Params) -> RuleState:
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
        _check_rates(self.lr, self.weight_decay)

    def start(self, params: Params) -> RuleState:
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
        _check_rates(self.alpha, 0.0)
        _check_rates(self.beta, 0.0)
        if not (math.isfinite(self.delta) and self.delta > 0):
            raise ConfigError(f"delta must be a positive number, not {self.delta}")

    def start(self, params: Params) -> RuleState:
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


@dataclass(frozen=True)
class Phase:
    """Train some of the parameters, and keep all others as they are, for a while."""

    trains: frozenset[str]
    epochs: int | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        amount = self.epochs if self.steps is None else self.steps
        if (self.epochs is None) == (self.steps is None) or amount is None or amount < 0:
            raise ConfigError(
                "local work is a number of epochs or a number of steps, zero or more, not "
                f"epochs={self.epochs} and steps={self.steps}"
            )
        if whole("local work", amount) > MOST:
            raise ConfigError(f"local work is at most {MOST:,} epochs or steps, not {amount:,}")

    def step_count(self, samples: int, batch_size: int | None) -> int:
        """How many steps a client with that many samples takes."""
        if self.steps is not None:
            return self.steps
        return (self.epochs or 0) * math.ceil(samples / (batch_size or samples))


@dataclass(frozen=True)
class Plan:
    """A client's local work: phases under one rule, with one optimiser state throughout."""

    phases: tuple[Phase, ...]
    rule: Rule
    batch_size: int | None = 10  # None: every step sees all of the client's samples

    def __post_init__(self) -> None:
        if self.batch_size is not None and whole("the batch size", self.batch_size) < 1:
            raise ConfigError(f"the batch size must be at least 1, not {self.batch_size}")

    def step_count(self, samples: int) -> int:
        return sum(phase.step_count(samples, self.batch_size) for phase in self.phases)

    def sample_count(self, samples: int) -> int:
        """How many samples those steps process; a full epoch has no more than there are."""
        size = self.batch_size or samples
        total = 0
        for phase in self.phases:  # each begins an epoch of its own
            steps = phase.step_count(samples, self.batch_size)
            epochs, rest = divmod(steps, math.ceil(samples / size))
            total += epochs * samples + min(rest * size, samples)
        return total


def resumed(rule: Rule, kept: RuleState, params: Params) -> RuleState:
    """The rule's state for these parameters: kept from an earlier phase, or a fresh start."""
    return {
        slot: {name: kept.get(slot, {}).get(name, value) for name, value in tensors.items()}
        for slot, tensors in rule.start(params).items()
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


def _check_rates(lr: float, weight_decay: float) -> None:
    if not (math.isfinite(lr) and lr > 0):
        raise ConfigError(f"the learning rate must be a positive, finite number, not {lr}")
    if not (math.isfinite(weight_decay) and weight_decay >= 0):
        raise ConfigError(f"weight decay must be zero or a positive number, not {weight_decay}")

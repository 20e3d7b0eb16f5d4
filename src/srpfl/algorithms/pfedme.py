"""pFedMe (Dinh et al., 2020): personal models as Moreau envelopes of the shared one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import nn

from srpfl.algorithms.base import Answered, Evaluation, stepped
from srpfl.algorithms.fedavg import FedAvg
from srpfl.core.plan import Plan
from srpfl.core.rules import SGD, Gradient, Rule, RuleState
from srpfl.core.slots import Slots
from srpfl.core.split import Params, Split
from srpfl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class PFedMe(FedAvg):
    """For each batch K steps of the rule on f_i(θ) + λ/2·‖θ − w‖², then w ← w − ηλ(w − θ); the
    server takes x ← (1 − β)x + β·mean of w. A client is judged by its θ ("local")."""

    strength: float = 15.0  # λ
    inner_steps: int = 5  # K
    w_lr: float = 0.005  # η; the rule has the rate of θ
    beta: float = 1.0  # β

    headline: ClassVar[Evaluation] = "local"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.strength > 0 and self.w_lr > 0 and self.beta > 0 and self.inner_steps >= 1):
            raise ConfigError("pFedMe needs a positive strength, w_lr and beta, and inner steps")

    def plans(self, model: nn.Module) -> tuple[Plan, ...]:
        rule = Envelope(
            rule=self.rule, strength=self.strength, steps=self.inner_steps, lr=self.w_lr
        )
        return tuple(replace(plan, rule=rule, keeps=("theta",)) for plan in super().plans(model))

    def client_state(self, parts: Split) -> Slots:
        return {"theta": parts.trained}

    def update(
        self, sent: Params, server: Slots, answers: Sequence[Answered], population: int
    ) -> tuple[Params, Slots]:
        return stepped(sent, self.mean(sent, answers), self.beta), server

    def own(self, shared: Params, personal: Params, slots: Mapping[str, Params]) -> Params:
        return slots["theta"]


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """Steps of a rule on θ, then one of w towards it. In a round θ begins at w and goes on."""

    rule: Rule = SGD()
    strength: float
    steps: int
    lr: float

    def start(self, params: Params, given: Slots) -> RuleState:
        return {**self.rule.start(params, given), "theta": params}

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        theta = state["theta"]
        inner = {name: value for name, value in state.items() if name != "theta"}

        def pulled(at: Params) -> Params:
            grads = gradient(at)
            return {n: grad + self.strength * (at[n] - params[n]) for n, grad in grads.items()}

        for _ in range(self.steps):
            theta, inner = self.rule.step(pulled, theta, inner)
        pace = self.lr * self.strength
        moved = {name: w - pace * (w - theta[name]) for name, w in params.items()}
        return moved, {**inner, "theta": theta}

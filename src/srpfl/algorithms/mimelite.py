"""MimeLite (Karimireddy et al., 2021): the server's momentum, as it stands, in every local step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import nn, zeros_like

from srpfl.algorithms.base import Answered
from srpfl.algorithms.fedavg import FedAvg
from srpfl.core.plan import Plan
from srpfl.core.rules import SGD, Gradient, Rule, RuleState, among
from srpfl.core.slots import Slots
from srpfl.core.split import Params, Split
from srpfl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class MimeLite(FedAvg):
    """Local steps y ← y − η((1 − β)∇f_i(y) + βm) with m as it was sent; then m ← (1 − β)·mean of
    ∇f_i(x) + βm, from the whole data of each participant, and x is the mean of y."""

    beta: float = 0.9  # β
    rule: SGD = SGD()

    wants_gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.beta < 1 or type(self.rule) is not SGD or self.rule.momentum:
            raise ConfigError("MimeLite needs SGD without momentum, and a beta from 0 to below 1")

    def plans(self, model: nn.Module) -> tuple[Plan, ...]:
        rule = ServerMomentum(rule=self.rule, beta=self.beta)
        return tuple(replace(plan, rule=rule) for plan in super().plans(model))

    def server_state(self, parts: Split) -> Slots:
        return {"m": {name: zeros_like(value) for name, value in parts.trained.items()}}

    def sends(self, server: Slots) -> Slots:
        return server

    def update(
        self, sent: Params, server: Slots, answers: Sequence[Answered], population: int
    ) -> tuple[Params, Slots]:
        gradients = [answer.sent["gradient"] for answer in answers]
        g, beta = self.mean_beside(gradients, self.weights(answers)), self.beta
        m = {name: (1 - beta) * g[name] + beta * old for name, old in server["m"].items()}
        return self.mean(sent, answers), {"m": m}


@dataclass(frozen=True, kw_only=True)
class ServerMomentum:
    """Another rule, on (1 − β)∇f + βm."""

    rule: Rule = SGD()
    beta: float

    def start(self, params: Params, given: Slots) -> RuleState:
        return {**self.rule.start(params, given), "m": among(params, given["m"])}

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        m, beta = state["m"], self.beta

        def averaged(at: Params) -> Params:
            return {n: (1 - beta) * grad + beta * m[n] for n, grad in gradient(at).items()}

        params, after = self.rule.step(averaged, params, state)
        return params, {**after, "m": m}

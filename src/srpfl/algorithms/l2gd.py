"""L2GD (Hanzely and Richtárik, 2020): models of the clients' own that are pulled to their mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from srpfl.algorithms.base import Evaluation
from srpfl.algorithms.fedavg import FedAvg, amount
from srpfl.core.plan import Plan
from srpfl.core.rules import ABOUT, SENT, SGD, STEPS, Gradient, Rule, RuleState, among
from srpfl.core.slots import Given, Reply, Slots, Trained
from srpfl.core.split import Params, Split, trainable
from srpfl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class L2GD(FedAvg):
    """Gradient descent on Σ f_i(x_i) + λ/2·‖x_i − x̄‖²: once x_i ← x_i − ηλK(x_i − x̄), then K times
    x_i ← x_i − η∇f_i(x_i), with x̄ the mean of what clients have sent. The paper throws a coin with
    chance p of averaging in every step; K is the (1 − p)/p steps that it brings between two
    averages. λ = 0 is local training. A client is judged by its x_i ("local")."""

    strength: float = 0.1  # λ
    rule: SGD = SGD()

    headline: ClassVar[Evaluation] = "local"
    moves: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.rule) is not SGD or not self.strength >= 0:
            raise ConfigError("L2GD needs SGD, and a strength of zero or more")

    def plans(self, model: nn.Module) -> tuple[Plan, ...]:
        rule = Averaging(rule=self.rule, pace=self.rule.lr * self.strength)
        phase = amount(trainable(model), self.epochs, self.steps)
        return (Plan((phase,), rule, self.batch_size, slot="x"),)

    def client_state(self, parts: Split) -> Slots:
        return {"x": parts.shared}

    def finish(self, given: Given, trained: Trained) -> Reply:
        return Reply(trained.own["x"], trained.personal, trained.own)

    def own(self, shared: Params, personal: Params, slots: Mapping[str, Params]) -> Params:
        return slots["x"]


@dataclass(frozen=True, kw_only=True)
class Averaging:
    """Before the first step, a step towards what was sent: of that pace times all steps."""

    rule: Rule = SGD()
    pace: float

    def start(self, params: Params, given: Slots) -> RuleState:
        share = (self.pace * given[ABOUT][STEPS]).clamp(max=1.0)
        mean = among(params, given[SENT])
        pull = {name: share * (value - params[name]) for name, value in mean.items()}
        return {**self.rule.start(params, given), "pull": pull}

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        pulled = {name: value + state["pull"][name] for name, value in params.items()}
        params, after = self.rule.step(gradient, pulled, state)
        done = {name: torch.zeros_like(value) for name, value in state["pull"].items()}
        return params, {**after, "pull": done}

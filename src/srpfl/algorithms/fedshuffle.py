"""FedShuffle (Horváth et al., 2022): clients with more steps take shorter ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import nn

from srpfl.algorithms.base import Answered, stepped
from srpfl.algorithms.fedavg import FedAvg
from srpfl.core.plan import Plan
from srpfl.core.rules import ABOUT, SGD, STEPS, Gradient, Rule, RuleState
from srpfl.core.slots import Slots
from srpfl.core.split import Params
from srpfl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class FedShuffle(FedAvg):
    """Epochs over the client's shuffled data with η_i = ηR / K_i for its K_i steps, then x ← x +
    γ·mean of (y_i − x): all clients go as far, however much data they have. R = 1 is the paper's
    way of writing it, in which η is the rate of a whole round of local work."""

    reference: float = 10.0  # R, the steps of a client that takes the rule's own
    server_lr: float = 1.0  # γ

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.reference > 0 and self.server_lr > 0):
            raise ConfigError("FedShuffle needs a positive reference and server_lr")

    def plans(self, model: nn.Module) -> tuple[Plan, ...]:
        rule = Shorter(rule=self.rule, reference=self.reference)
        return tuple(replace(plan, rule=rule) for plan in super().plans(model))

    def update(
        self, sent: Params, server: Slots, answers: Sequence[Answered], population: int
    ) -> tuple[Params, Slots]:
        return stepped(sent, self.mean(sent, answers), self.server_lr), server


@dataclass(frozen=True, kw_only=True)
class Shorter:
    """Another rule's steps, scaled by a reference over how many there are."""

    rule: Rule = SGD()
    reference: float

    def start(self, params: Params, given: Slots) -> RuleState:
        scale = self.reference / given[ABOUT][STEPS].clamp(min=1)
        return {**self.rule.start(params, given), "scale": {"scale": scale}}

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        scale = state["scale"]["scale"]
        to, after = self.rule.step(gradient, params, state)
        moved = {name: value + scale * (to[name] - value) for name, value in params.items()}
        return moved, {**after, "scale": state["scale"]}

"""FLANP's own rule: a stage ends when its clients' problem is solved to statistical accuracy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from srpfl.errors import ConfigError
from srpfl.participation.base import Call, Memory, Outcome, Sampling, checked_start


@dataclass(frozen=True, kw_only=True)
class FlanpRule(Sampling):
    """Double n once ‖∇L_n(w)‖² ≤ 2·μ·V, with V = noise / (number of the n clients' samples).

    μ is the constant of strong convexity (``convexity``) and V the statistical accuracy of all
    samples of the n participants. The rule needs nested participants: the same clients must be
    the fastest in every round, and all clients are asked.
    """

    start: int | None = None
    convexity: float = 0.1  # μ
    noise: float = 1.0  # the constant of V

    needs_fixed_speeds: ClassVar[bool] = True
    wants_gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("convexity", "noise"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{name} must be a positive number, not {value}")

    def begin(self, population: int) -> Memory:
        super().begin(population)
        asked = self.asked(population)
        if asked < population:
            raise ConfigError(
                "FLANP's rule needs every client to be asked in every round, and only "
                f"{asked} of {population} are: use the fixed number of rounds per stage instead"
            )
        return {"wait": checked_start(self.start, asked), "stage": 0}

    def call(self, memory: Memory, round: int, population: int) -> Call:
        stage = memory["stage"]
        return Call(ask=population, wait=memory["wait"], stage=stage, draw=self.drawn(round, stage))

    def learn(self, memory: Memory, outcome: Outcome) -> Memory:
        norm, bound = squared_gradient_norm(outcome), self.bound(outcome)
        if norm > bound or memory["wait"] == len(outcome.asked):
            return memory
        return {"wait": min(len(outcome.asked), 2 * memory["wait"]), "stage": memory["stage"] + 1}

    def bound(self, outcome: Outcome) -> float:
        """2·μ·V for this round's participants."""
        samples = sum(answer.samples for answer in outcome.answers)
        return 2 * self.convexity * self.noise / samples


def squared_gradient_norm(outcome: Outcome) -> float:
    """‖∇L_n(w)‖² at the model that was sent, L_n being the mean of the participants' losses."""
    gradients = [answer.sent["gradient"] for answer in outcome.answers]
    total = 0.0
    for name in gradients[0]:
        mean = torch.stack([gradient[name] for gradient in gradients]).double().mean(0)
        total += float(mean.square().sum())
    return total

"""FedAdam (Reddi et al., 2021): the mean of the clients' updates as a gradient for Adam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from srpfl.algorithms.base import Answered
from srpfl.algorithms.fedavg import FedAvg
from srpfl.core.slots import Slots
from srpfl.core.split import Params, Split
from srpfl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class FedAdam(FedAvg):
    """Δ = mean of (y_i − x); m ← β₁m + (1 − β₁)Δ; v ← β₂v + (1 − β₂)Δ²; x ← x + η m / (√v + τ).

    As in the paper there is no correction of the moments' start, and v begins at τ².
    """

    server_lr: float = 0.01  # η
    betas: tuple[float, float] = (0.9, 0.99)
    tau: float = 1e-3  # τ, how little adaptive it is

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.server_lr > 0 and self.tau > 0 and all(0 <= b < 1 for b in self.betas)):
            raise ConfigError("FedAdam needs a positive server_lr and tau, and betas from 0 to 1")

    def server_state(self, parts: Split) -> Slots:
        zeros = {name: torch.zeros_like(value) for name, value in parts.trained.items()}
        return {"m": zeros, "v": {name: value + self.tau**2 for name, value in zeros.items()}}

    def update(
        self, sent: Params, server: Slots, answers: Sequence[Answered], population: int
    ) -> tuple[Params, Slots]:
        mean, (one, two) = self.mean(sent, answers), self.betas
        delta = {name: mean[name] - sent[name] for name in server["m"]}
        m = {k: one * server["m"][k] + (1 - one) * d for k, d in delta.items()}
        v = {k: self.second(server["v"][k], d * d, two) for k, d in delta.items()}
        moved = {k: sent[k] + self.server_lr * m[k] / (v[k].sqrt() + self.tau) for k in delta}
        return {**mean, **moved}, {"m": m, "v": v}

    def second(self, v: Tensor, squared: Tensor, beta: float) -> Tensor:
        """The next second moment."""
        return beta * v + (1 - beta) * squared

"""FedOpt's other server optimisers (Reddi et al., 2021) and momentum (Hsu et al., 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from srpfl.algorithms.base import Answered
from srpfl.algorithms.fedadam import FedAdam
from srpfl.algorithms.fedavg import FedAvg
from srpfl.core.slots import Slots
from srpfl.core.split import Params, Split


@dataclass(frozen=True, kw_only=True)
class FedYogi(FedAdam):
    """FedAdam with v ← v − (1 − β₂)Δ²·sign(v − Δ²), which forgets more slowly."""

    def second(self, v: Tensor, squared: Tensor, beta: float) -> Tensor:
        return v - (1 - beta) * squared * torch.sign(v - squared)


@dataclass(frozen=True, kw_only=True)
class FedAdagrad(FedAdam):
    """FedAdam with v ← v + Δ², which forgets nothing, and no first moment (β₁ = 0)."""

    betas: tuple[float, float] = (0.0, 0.0)

    def second(self, v: Tensor, squared: Tensor, beta: float) -> Tensor:
        return v + squared


@dataclass(frozen=True, kw_only=True)
class FedAvgM(FedAvg):
    """Momentum on the server: m ← βm + Δ, x ← x + ηm, with Δ the mean of (y_i − x)."""

    server_lr: float = 1.0  # η
    momentum: float = 0.9  # β

    def server_state(self, parts: Split) -> Slots:
        return {"m": {name: torch.zeros_like(value) for name, value in parts.trained.items()}}

    def update(
        self, sent: Params, server: Slots, answers: Sequence[Answered], population: int
    ) -> tuple[Params, Slots]:
        mean = self.mean(sent, answers)
        m = {k: self.momentum * old + mean[k] - sent[k] for k, old in server["m"].items()}
        return {**mean, **{k: sent[k] + self.server_lr * m[k] for k in m}}, {"m": m}

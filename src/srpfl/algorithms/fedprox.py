"""FedProx (Li et al., 2020): local work that is pulled back to the model that was sent."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import nn

from srpfl.algorithms.fedavg import FedAvg
from srpfl.core.plan import Plan
from srpfl.core.rules import Proximal


@dataclass(frozen=True, kw_only=True)
class FedProx(FedAvg):
    """Local steps on f_i(w) + μ/2·‖w − w_sent‖²; the server averages. μ = 0 is FedAvg."""

    mu: float = 0.01  # μ

    def plans(self, model: nn.Module) -> tuple[Plan, ...]:
        if self.mu == 0:  # to the last bit, also where an engine knows plain rules
            return super().plans(model)
        rule = Proximal(rule=self.rule, strength=self.mu)
        return tuple(replace(plan, rule=rule) for plan in super().plans(model))

"""FedDyn (Acar et al., 2021): a penalty of each client's own that makes the local optima agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import nn, zeros_like

from srpfl.algorithms.base import Answered
from srpfl.algorithms.fedavg import FedAvg
from srpfl.core.plan import Plan
from srpfl.core.rules import Corrected, Proximal
from srpfl.core.slots import Given, Reply, Slots, Trained
from srpfl.core.split import Params, Split


@dataclass(frozen=True, kw_only=True)
class FedDyn(FedAvg):
    """Local steps on f_i(w) − ⟨g_i, w⟩ + α/2·‖w − x‖², then g_i ← g_i − α(w − x); the server keeps
    h ← h − α/N·Σ(w − x), and the next x is the mean of w less h/α."""

    alpha: float = 0.1  # α

    def plans(self, model: nn.Module) -> tuple[Plan, ...]:
        rule = Proximal(rule=Corrected(rule=self.rule, minus="g_i"), strength=self.alpha)
        return tuple(replace(plan, rule=rule) for plan in super().plans(model))

    def server_state(self, parts: Split) -> Slots:
        zeros = {name: zeros_like(value) for name, value in parts.trained.items()}
        return {"h": zeros, **self.hears()}

    def client_state(self, parts: Split) -> Slots:
        return {"g_i": self.server_state(parts)["h"]}

    def finish(self, given: Given, trained: Trained) -> Reply:
        old, x, w = given.own["g_i"], given.shared, trained.shared
        new = {name: old[name] - self.alpha * (w[name] - x[name]) for name in old}
        return Reply(w, trained.personal, {"g_i": new})

    def update(
        self, sent: Params, server: Slots, answers: Sequence[Answered], population: int
    ) -> tuple[Params, Slots]:
        mean, (weight, each, heard) = self.mean(sent, answers), self.heard(server, answers)
        pace, pull = self.alpha * (weight / population), self.alpha * each
        h = {k: v - pace * (mean[k] - sent[k]) for k, v in server["h"].items()}
        return {**mean, **{k: mean[k] - h[k] / pull for k in h}}, {"h": h, **heard}

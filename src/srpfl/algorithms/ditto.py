"""Ditto (Li et al., 2021): a model of each client's own, pulled towards the shared one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from srpfl.algorithms.base import Evaluation
from srpfl.algorithms.fedavg import FedAvg, amount
from srpfl.core.plan import Plan
from srpfl.core.rules import Proximal
from srpfl.core.slots import Slots
from srpfl.core.split import Params, Split, trainable


@dataclass(frozen=True, kw_only=True)
class Ditto(FedAvg):
    """FedAvg on the shared w; then each client's v ← v − η(∇f_i(v) + λ(v − w)), w as it was sent.

    A client is judged by its v ("local"). λ = 0 is local training alone.
    """

    strength: float = 0.1  # λ
    own_epochs: int | None = 1
    own_steps: int | None = None  # instead of epochs

    headline: ClassVar[Evaluation] = "local"

    def plans(self, model: nn.Module) -> tuple[Plan, ...]:
        rule = Proximal(rule=self.rule, strength=self.strength)
        phase = amount(trainable(model), self.own_epochs, self.own_steps)
        return *super().plans(model), Plan((phase,), rule, self.batch_size, slot="v")

    def client_state(self, parts: Split) -> Slots:
        return {"v": parts.shared}

    def own(self, shared: Params, personal: Params, slots: Mapping[str, Params]) -> Params:
        return slots["v"]

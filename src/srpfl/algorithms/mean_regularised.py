"""Mean-regularised multi-task learning (Hu et al., 2021): a model per client, close to the mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from srpfl.algorithms.base import Evaluation
from srpfl.algorithms.fedavg import FedAvg, amount
from srpfl.core.plan import Plan
from srpfl.core.rules import Proximal
from srpfl.core.slots import Given, Reply, Slots, Trained
from srpfl.core.split import Params, Split, trainable


@dataclass(frozen=True, kw_only=True)
class MeanRegularised(FedAvg):
    """Each client's w_i ← w_i − η(∇f_i(w_i) + λ(w_i − w̄)); it sends how far w_i has moved, and the
    server moves w̄ by the mean of that. A client is judged by its w_i ("local")."""

    strength: float = 0.1  # λ

    headline: ClassVar[Evaluation] = "local"

    def plans(self, model: nn.Module) -> tuple[Plan, ...]:
        rule = Proximal(rule=self.rule, strength=self.strength)
        phase = amount(trainable(model), self.epochs, self.steps)
        return (Plan((phase,), rule, self.batch_size, slot="w"),)

    def client_state(self, parts: Split) -> Slots:
        return {"w": parts.shared}

    def finish(self, given: Given, trained: Trained) -> Reply:
        before, after = given.own["w"], trained.own["w"]
        sent = {n: mean + (after[n] - before[n]) for n, mean in given.shared.items()}
        return Reply(sent, trained.personal, trained.own)

    def own(self, shared: Params, personal: Params, slots: Mapping[str, Params]) -> Params:
        return slots["w"]

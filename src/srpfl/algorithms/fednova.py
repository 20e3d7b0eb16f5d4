"""FedNova (Wang et al., 2020): clients that take more steps do not count for more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from srpfl.algorithms.base import Answered
from srpfl.algorithms.fedavg import FedAvg
from srpfl.core.means import weighted_mean
from srpfl.core.rules import SGD
from srpfl.core.slots import Given, Reply, Slots, Trained
from srpfl.core.split import Params, Split
from srpfl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class FedNova(FedAvg):
    """d_i = (x − y_i) / a_i, then x ← x − τ·Σ p_i d_i with τ = Σ p_i a_i. After k steps of SGD a_i
    is k; with momentum ρ it is (k − ρ(1 − ρᵏ) / (1 − ρ)) / (1 − ρ). What is left of the bias is
    clients' drift within a round, which goes with the learning rate."""

    rule: SGD = SGD()

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.rule) is not SGD:
            raise ConfigError("FedNova knows how far steps of SGD go, not those of other rules")

    def server_state(self, parts: Split) -> Slots:
        # Only parameters are moved by τ: statistics of normalisation layers are averaged.
        return {"tau": {name: torch.zeros(()) for name in parts.trained}}

    def finish(self, given: Given, trained: Trained) -> Reply:
        rho, k = self.rule.momentum, trained.steps.clamp(min=1)
        length = (k - rho * (1 - rho**k) / (1 - rho)) / (1 - rho)
        return Reply(trained.shared, trained.personal, trained.own, {"length": {"a": length}})

    def update(
        self, sent: Params, server: Slots, answers: Sequence[Answered], population: int
    ) -> tuple[Params, Slots]:
        lengths = [float(answer.sent["length"]["a"]) for answer in answers]
        weights = self.weights(answers)
        tau = sum(p * a for p, a in zip(weights, lengths, strict=True)) / sum(weights)
        d = weighted_mean(
            [
                {name: (sent[name] - answer.shared[name]) / a for name in server["tau"]}
                for answer, a in zip(answers, lengths, strict=True)
            ],
            weights,
        )
        moved = {name: sent[name] - tau * d[name] for name in d}
        taus = {name: torch.full_like(old, tau) for name, old in server["tau"].items()}
        return {**self.mean(sent, answers), **moved}, {"tau": taus}

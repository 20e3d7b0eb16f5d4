"""CA2FL (Wang et al., "Tackling the data heterogeneity in asynchronous federated learning with
cached update calibration", ICLR 2024): the last update of everyone corrects for who answers often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import zeros_like

from srpfl.algorithms.base import Algorithm, Answered
from srpfl.algorithms.fedavg import FedAvgFT
from srpfl.algorithms.fedrep import FedRep
from srpfl.core.slots import Given, Reply, Slots, Trained
from srpfl.core.split import Params, Split


@dataclass(frozen=True, kw_only=True)
class Calibrated(Algorithm):
    """x ← x + h + mean(Δ_i − h_i) over the answers, then h_i ← Δ_i for those who gave them; Δ_i is
    what client i has changed, h the mean of the h_i of all N clients, and all begin at zero.

    The paper's server holds every h_i. Here each client holds its own, kept as all that a client
    keeps if its answer counted, and sends Δ_i − h_i: as many bytes, and the server holds h alone,
    which changes by Σ(Δ_i − h_i) / N. Answers have to count in full: FedBuff(staleness="constant").
    """

    def server_state(self, parts: Split) -> Slots:
        zeros = {name: zeros_like(value) for name, value in parts.trained.items()}
        return {**super().server_state(parts), "h": zeros, **self.hears()}

    def client_state(self, parts: Split) -> Slots:
        zeros = {name: zeros_like(value) for name, value in parts.trained.items()}
        return {**super().client_state(parts), "h_i": zeros}

    def finish(self, given: Given, trained: Trained) -> Reply:
        reply, h_i = super().finish(given, trained), given.own["h_i"]
        change = {name: reply.shared[name] - given.shared[name] for name in h_i}
        sent = {name: reply.shared[name] - h_i[name] for name in h_i}
        own = {**reply.own, "h_i": change}
        return reply._replace(shared={**reply.shared, **sent}, own=own)

    def update(
        self, sent: Params, server: Slots, answers: Sequence[Answered], population: int
    ) -> tuple[Params, Slots]:
        mean, h = self.mean(sent, answers), server["h"]
        weight, each, heard = self.heard(server, answers)
        after = {n: old + weight / population * (mean[n] - sent[n]) for n, old in h.items()}
        moved = {name: mean[name] + old / each for name, old in h.items()}
        return {**mean, **moved}, {**server, "h": after, **heard}


@dataclass(frozen=True, kw_only=True)
class CA2FL(Calibrated, FedAvgFT):
    """FedAvg with calibrated updates, judged after each client has fine-tuned the last layer."""


@dataclass(frozen=True, kw_only=True)
class CA2FLRep(Calibrated, FedRep):
    """FedRep with calibrated updates of the representation; heads stay with their clients."""

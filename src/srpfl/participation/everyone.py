"""Wait for everyone who was asked: what FedAvg and FedRep do."""

from __future__ import annotations

from dataclasses import dataclass

from srpfl.participation.base import STAGE, Call, Memory, Sampling


@dataclass(frozen=True, kw_only=True)
class Everyone(Sampling):
    """All sampled clients; with ``sample=0.2`` a random fifth of the population each round.

    >>> Everyone(sample=0.2).call({}, round=0, population=50)
    Call(ask=10, wait=10, stage=0, draw=0, deadline=None, grace=0.0)
    """

    def call(self, memory: Memory, round: int, population: int) -> Call:
        asked = self.asked(population)
        return Call(ask=asked, wait=asked, draw=self.drawn(round, round // STAGE))

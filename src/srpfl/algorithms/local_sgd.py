"""Local SGD (Stich, 2019): FedAvg that counts steps, not epochs."""

from __future__ import annotations

from dataclasses import dataclass

from srpfl.algorithms.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class LocalSGD(FedAvg):
    """H steps of SGD on each client, whatever it has of data, then the mean."""

    epochs: int | None = None
    steps: int | None = 10  # H

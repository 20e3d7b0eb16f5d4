"""FedPer and FedBABU: FedRep's split with other phases."""

from __future__ import annotations

from dataclasses import dataclass

from srpfl.algorithms.base import PersonalHead
from srpfl.algorithms.fedavg import amount
from srpfl.core.plan import Phase


@dataclass(frozen=True, kw_only=True)
class FedPer(PersonalHead):
    """FedPer (Arivazhagan et al., 2019): representation and personal head trained together."""

    epochs: int | None = 1
    steps: int | None = None

    def phases(self, shared: frozenset[str], personal: frozenset[str]) -> tuple[Phase, ...]:
        return (amount(shared | personal, self.epochs, self.steps),)


@dataclass(frozen=True, kw_only=True)
class FedBABU(PersonalHead):
    """FedBABU (Oh et al., 2022): the head stays the initial one; only evaluation trains it."""

    epochs: int | None = 1
    steps: int | None = None

    def phases(self, shared: frozenset[str], personal: frozenset[str]) -> tuple[Phase, ...]:
        return (amount(shared, self.epochs, self.steps),)

"""FedRep (Collins et al., 2021): a shared representation, a personal head, trained in turn.

With :class:`srpfl.Doubling` participation this is SRPFL, Algorithm 1 of the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

from srpfl.algorithms.base import PersonalHead
from srpfl.algorithms.fedavg import amount
from srpfl.core.plan import Phase
from srpfl.core.rules import SGD, Rule


@dataclass(frozen=True, kw_only=True)
class FedRep(PersonalHead):
    """τ_h epochs on the head with φ as received, then τ_φ epochs on φ with the head frozen.

    >>> [phase.epochs for phase in FedRep().phases(frozenset({"body"}), frozenset({"head"}))]
    [10, 1]
    """

    head_epochs: int | None = 10  # τ_h
    body_epochs: int | None = 1  # τ_φ
    head_steps: int | None = None  # instead of epochs
    body_steps: int | None = None
    rule: Rule = SGD(momentum=0.5)

    def phases(self, shared: frozenset[str], personal: frozenset[str]) -> tuple[Phase, ...]:
        return (
            amount(personal, self.head_epochs, self.head_steps),
            amount(shared, self.body_epochs, self.body_steps),
        )

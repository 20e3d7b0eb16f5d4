"""LG-FedAvg (Liang et al., 2020): the representation is personal, the last layers are shared."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from srpfl.algorithms.base import Algorithm
from srpfl.algorithms.fedavg import amount
from srpfl.core.plan import Phase
from srpfl.core.split import Personal, Predicate, last_linear, outside, predicate


@dataclass(frozen=True, kw_only=True)
class LGFedAvg(Algorithm):
    """Shares the last two linear layers; a participant trains everything."""

    epochs: int | None = 1
    steps: int | None = None
    personal: Personal | None = None  # all but the last two linear layers

    def is_personal(self, model: nn.Module) -> Predicate:
        if self.personal is not None:
            return predicate(model, self.personal)
        return outside(last_linear(model, 2))

    def phases(self, shared: frozenset[str], personal: frozenset[str]) -> tuple[Phase, ...]:
        return (amount(shared | personal, self.epochs, self.steps),)

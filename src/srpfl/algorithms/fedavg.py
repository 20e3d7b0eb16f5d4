"""FedAvg (McMahan et al., 2017): everyone trains the whole model, the server averages it.

FLANP's local work is the same; FLANP differs in who takes part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from srpfl.algorithms.base import Evaluation, SharesAll
from srpfl.core.plan import Phase


@dataclass(frozen=True, kw_only=True)
class FedAvg(SharesAll):
    """E epochs (or a number of steps) on everything.

    >>> FedAvg(epochs=2).headline
    'global'
    """

    epochs: int | None = 1
    steps: int | None = None  # instead of epochs

    headline: ClassVar[Evaluation] = "global"

    def phases(self, shared: frozenset[str], personal: frozenset[str]) -> tuple[Phase, ...]:
        return (amount(shared, self.epochs, self.steps),)


@dataclass(frozen=True, kw_only=True)
class FedAvgFT(FedAvg):
    """FedAvg, judged after each client has fine-tuned the last linear layer."""

    headline: ClassVar[Evaluation] = "personalised"


def amount(trains: frozenset[str], epochs: int | None, steps: int | None) -> Phase:
    """A phase of that many steps or, where no number of steps is given, epochs."""
    return Phase(trains, steps=steps) if steps is not None else Phase(trains, epochs=epochs)

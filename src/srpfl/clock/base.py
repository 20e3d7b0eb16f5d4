"""How long clients take. A clock answers for any client and round, in any order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Work:
    """What a round asks of the clients, in the order of the clients."""

    steps: IntArray  # gradient steps
    samples: IntArray  # samples processed in those steps
    down: int  # bytes of the model that is sent
    up: int  # bytes of the answer


class Clock(Protocol):
    """Simulated time."""

    @property
    def communication(self) -> float:
        """C, what a round costs beside the clients' computing."""
        ...

    @property
    def fixed(self) -> bool:
        """True where a client takes the same time in every round."""
        ...

    def times(
        self, seed: int, round: int, clients: IntArray, population: int, work: Work
    ) -> FloatArray:
        """T_i for each of the clients asked in this round."""
        ...

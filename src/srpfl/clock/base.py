"""How long clients take. A clock answers for any client and round, in any order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Work:
    """What a round asks of the clients, in the order of the clients."""

    steps: IntArray  # gradient steps
    samples: IntArray  # samples processed in those steps
    down: int | IntArray  # bytes of the model that is sent
    up: int | IntArray  # bytes of the answer
    share: float | FloatArray = 1.0  # what a step costs beside one of the whole model
    asked: int = 0  # how many clients are at work, where that is not how many are asked now
    start: float = 0.0  # when they begin, since the run began


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
        """T_i for each of the clients asked in this round: zero or more, or infinity for one that
        never answers."""
        ...


@runtime_checkable
class ComesAndGoes(Protocol):
    """A clock whose clients cannot always be reached."""

    def stays(
        self, seed: int, clients: IntArray, population: int, time: float
    ) -> tuple[FloatArray, FloatArray]:
        """When the stay of each client begins and ends that holds this time, or else its next one;
        infinity for one who never comes, or never leaves again. Who leaves while at work never
        answers."""
        ...

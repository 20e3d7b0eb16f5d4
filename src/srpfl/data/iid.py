"""IID: every client holds a fair random sample of everything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from srpfl.core.randomness import stream
from srpfl.data.base import IntArray
from srpfl.data.partition import Labels, Parts, apportion, cut


@dataclass(frozen=True)
class IID:
    """All points are shuffled and dealt out; sizes differ by at most one.

    >>> labels = np.arange(10)
    >>> parts = IID().deal(Labels(labels, labels, classes=10), clients=3, seed=0)
    >>> [len(part) for part in parts.train]
    [4, 3, 3]
    """

    def deal(self, labels: Labels, clients: int, seed: int) -> Parts:
        def dealt(points: IntArray, which: int) -> list[IntArray]:
            rows = stream(seed, "partition", which).permutation(len(points))
            return [np.sort(piece) for piece in cut(rows, apportion(len(rows), np.ones(clients)))]

        return Parts(dealt(labels.train, 1), dealt(labels.test, 2))

"""Log-normal sizes: a few clients hold much, many hold little."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from srpfl.core.randomness import stream
from srpfl.data.base import IntArray
from srpfl.data.partition import (
    Labels,
    Parts,
    apportion,
    check_holders,
    choose_classes,
    cut,
    deal_classes,
    holding,
    present,
)
from srpfl.errors import ConfigError


@dataclass(frozen=True)
class LogNormal:
    """Clients' sizes are in proportion to exp(sigma · z), z ~ N(0, 1), in training and in tests.

    Without ``classes_per_client`` a client holds a random sample of everything. With it a client
    holds that many classes, and each class is dealt out by size among its holders.

    >>> labels = np.zeros(100, dtype=np.int64)
    >>> parts = LogNormal(1.0).deal(Labels(labels, labels, classes=1), clients=4, seed=0)
    >>> len({len(part) for part in parts.train}) > 1
    True
    """

    sigma: float
    classes_per_client: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise ConfigError(f"sigma must be zero or a positive number, not {self.sigma}")

    def deal(self, labels: Labels, clients: int, seed: int) -> Parts:
        sizes = stream(seed, "partition", 4).lognormal(sigma=self.sigma, size=clients)
        if self.classes_per_client is None:

            def dealt(points: IntArray, which: int) -> list[IntArray]:
                rows = stream(seed, "partition", which).permutation(len(points))
                return [np.sort(p) for p in cut(rows, apportion(len(rows), sizes, least=1))]

            return Parts(dealt(labels.train, 1), dealt(labels.test, 2))
        rng = stream(seed, "partition", 0)
        chosen = choose_classes(clients, self.classes_per_client, present(labels), rng)
        shares = holding(chosen, labels.classes)
        check_holders(labels, shares)
        shares *= sizes[:, None]
        return Parts(
            deal_classes(labels.train, shares, stream(seed, "partition", 1), least=1),
            deal_classes(labels.test, shares, stream(seed, "partition", 2), least=1),
        )

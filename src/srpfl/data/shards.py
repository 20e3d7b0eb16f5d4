"""Shards: every client holds the same number of classes."""

from __future__ import annotations

from dataclasses import dataclass

from srpfl.core.randomness import stream
from srpfl.data.partition import (
    Labels,
    Parts,
    check_holders,
    choose_classes,
    deal_classes,
    holding,
    present,
)


@dataclass(frozen=True)
class Shards:
    """Every client holds exactly ``classes_per_client`` classes, the paper's S.

    A class is dealt out evenly among the clients that hold it, its test points in the same way.
    With fewer places (clients x S) than classes, the classes that nobody holds are left out, and a
    warning says so.

    >>> import numpy as np
    >>> labels = np.repeat([0, 1, 2, 3], 6)
    >>> parts = Shards(2).deal(Labels(labels, labels, classes=4), clients=4, seed=0)
    >>> [len(np.unique(labels[part])) for part in parts.train]
    [2, 2, 2, 2]
    >>> [len(part) for part in parts.train]
    [6, 6, 6, 6]
    """

    classes_per_client: int

    def deal(self, labels: Labels, clients: int, seed: int) -> Parts:
        chosen = choose_classes(
            clients, self.classes_per_client, present(labels), stream(seed, "partition", 0)
        )
        shares = holding(chosen, labels.classes)
        check_holders(labels, shares)
        return Parts(
            deal_classes(labels.train, shares, stream(seed, "partition", 1)),
            deal_classes(labels.test, shares, stream(seed, "partition", 2)),
        )

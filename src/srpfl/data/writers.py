"""By writer: a client is a person, with that person's own hand and own choice of characters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from srpfl.data.partition import Labels, Parts
from srpfl.errors import ConfigError, DataError
from srpfl.randomness import stream


@dataclass(frozen=True)
class Writers:
    """One client per writer; which writers take part is a fair choice in the seed.

    A client's test points are its writer's test points. Only writers with both training and test
    points (of the classes in use) can be chosen.

    >>> who, labels = np.array(["ann", "bob", "ann", "bob"]), np.array([0, 0, 1, 1])
    >>> parts = Writers().deal(Labels(labels, labels, 2, who, who), clients=2, seed=0)
    >>> sorted(part.tolist() for part in parts.train)
    [[0, 2], [1, 3]]
    """

    def deal(self, labels: Labels, clients: int, seed: int) -> Parts:
        if labels.train_writers is None or labels.test_writers is None:
            raise ConfigError("this data set does not say who wrote what: femnist does")
        both = np.intersect1d(labels.train_writers, labels.test_writers)
        if clients > len(both):
            raise DataError(
                f"{clients} clients need as many writers, and {len(both)} writers have training "
                "and test points of these classes: take fewer clients or more classes"
            )
        taken = stream(seed, "partition", 0).choice(both, clients, replace=False)
        return Parts(
            [np.flatnonzero(labels.train_writers == writer) for writer in taken],
            [np.flatnonzero(labels.test_writers == writer) for writer in taken],
        )

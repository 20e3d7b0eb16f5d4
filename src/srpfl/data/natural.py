"""Natural clients: a client is a person, a role or a school, with all that is its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from srpfl.core.randomness import stream
from srpfl.data.partition import Labels, Parts, StrArray
from srpfl.errors import ConfigError, DataError


@dataclass(frozen=True)
class Natural:
    """One client per owner; which owners take part is a fair choice in the seed.

    The owner is who wrote (femnist), speaks (shakespeare), wears the phone (har) or teaches
    (school). A client's test points are its owner's test points. Only owners with both training and
    test points (of the classes in use) can be chosen.

    >>> who, labels = np.array(["ann", "bob", "ann", "bob"]), np.array([0, 0, 1, 1])
    >>> parts = Natural().deal(Labels(labels, labels, 2, who, who), clients=2, seed=0)
    >>> sorted(part.tolist() for part in parts.train)
    [[0, 2], [1, 3]]
    """

    def deal(self, labels: Labels, clients: int, seed: int) -> Parts:
        if labels.train_writers is None or labels.test_writers is None:
            raise ConfigError(
                "this data set does not say whose points these are: femnist, shakespeare, har and "
                "school do"
            )
        both = owners(labels)
        if clients > len(both):
            of_these = " of these classes" if labels.classes else ""
            or_more = " or more classes" if labels.classes else ""
            raise DataError(
                f"{clients} clients need as many {labels.who}, and {len(both)} have training and "
                f"test points{of_these}: take fewer clients{or_more}"
            )
        taken = stream(seed, "partition", 0).choice(both, clients, replace=False)
        return Parts(
            [np.flatnonzero(labels.train_writers == owner) for owner in taken],
            [np.flatnonzero(labels.test_writers == owner) for owner in taken],
        )


def owners(labels: Labels) -> StrArray:
    """Everybody with training and test points."""
    if labels.train_writers is None or labels.test_writers is None:
        return np.zeros(0, dtype=np.str_)
    return np.intersect1d(labels.train_writers, labels.test_writers)


Writers = Natural  # the name that it had when all its data was handwriting

"""A data set before it is dealt out to clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from srpfl.core.randomness import stream
from srpfl.data.base import IntArray, Samples, Transform
from srpfl.data.partition import Labels, StrArray
from srpfl.errors import ConfigError


@dataclass(frozen=True)
class Dataset:
    """Training and test points of one origin."""

    name: str
    train: Samples
    test: Samples
    classes: int
    transform: Transform = Transform()
    train_writers: StrArray | None = None
    test_writers: StrArray | None = None
    who: str = "writers"  # what the owners of points are called
    natural: bool = False  # clients are the owners, unless another partition is asked for
    task: str = "classification"  # what its labels are usually for

    @property
    def labels(self) -> Labels:
        return Labels(
            self.train.y,
            self.test.y,
            self.classes,
            self.train_writers,
            self.test_writers,
            self.who,
        )

    def only(self, classes: Sequence[int] | int) -> Dataset:
        """The same with some classes only (a number: the first ones), relabelled from 0 on."""
        if not self.classes:
            raise ConfigError(f"{self.name} has no classes to choose from: leave classes out")
        kept = list(range(classes)) if isinstance(classes, int) else list(classes)
        if not kept or len(set(kept)) < len(kept) or not set(kept) <= set(range(self.classes)):
            raise ConfigError(
                f"{self.name} has the classes 0 to {self.classes - 1}: choose some of them, each "
                f"once, not {classes}"
            )
        new = np.full(self.classes, -1)
        new[kept] = np.arange(len(kept))
        train, test = np.isin(self.train.y, kept), np.isin(self.test.y, kept)
        return replace(
            self,
            train=Samples(self.train.x[train], new[self.train.y[train]]),
            test=Samples(self.test.x[test], new[self.test.y[test]]),
            classes=len(kept),
            train_writers=None if self.train_writers is None else self.train_writers[train],
            test_writers=None if self.test_writers is None else self.test_writers[test],
        )


def held_out(groups: IntArray | StrArray, fraction: float) -> tuple[IntArray, IntArray]:
    """Rows for training and for testing: a fraction of every group is held out.

    The choice is always the same one, so that all seeds of a run are tested on the same points.

    >>> train, test = held_out(np.repeat([0, 1], [10, 5]), 0.2)
    >>> len(train), len(test)
    (12, 3)
    """
    rng = stream(0, "held out")
    test = np.zeros(len(groups), dtype=bool)
    for group in np.unique(groups):
        rows = rng.permutation(np.flatnonzero(groups == group))
        test[rows[: round(fraction * len(rows))]] = True
    return np.flatnonzero(~test), np.flatnonzero(test)

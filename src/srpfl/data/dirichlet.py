"""Dirichlet: clients with class mixes of their own, from nearly alike to nearly one class each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from srpfl.core.randomness import stream
from srpfl.data.partition import Labels, Parts, deal_classes, present
from srpfl.errors import ConfigError


@dataclass(frozen=True)
class Dirichlet:
    """Every client draws its mix of classes from Dirichlet(alpha), as in Hsu et al. (2019).

    Each class is then dealt out in proportion to what the mixes say, training and test points
    alike, so nothing is dropped and sizes differ between clients. A small alpha gives mixes of few
    classes, a large one mixes that are all the same.

    >>> labels = np.repeat([0, 1, 2], 20)
    >>> parts = Dirichlet(0.5).deal(Labels(labels, labels, classes=3), clients=4, seed=0)
    >>> sum(len(part) for part in parts.train)
    60
    """

    alpha: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.alpha) and self.alpha > 0):
            raise ConfigError(f"Dirichlet's alpha must be a positive number, not {self.alpha}")

    def deal(self, labels: Labels, clients: int, seed: int) -> Parts:
        kinds = present(labels)
        shares = np.zeros((clients, labels.classes))
        mixes = stream(seed, "partition", 0).dirichlet(np.full(len(kinds), self.alpha), clients)
        # A very small alpha underflows to zeros; a class that nobody wants must still go somewhere.
        shares[:, kinds] = mixes + 1e-12
        train = deal_classes(labels.train, shares, stream(seed, "partition", 1))
        held = [np.bincount(labels.train[part], minlength=labels.classes) > 0 for part in train]
        # Nobody is tested on a class that rounding left them without in training.
        test = deal_classes(labels.test, shares * np.array(held), stream(seed, "partition", 2))
        return Parts(train, test)

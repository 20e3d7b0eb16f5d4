"""Differences between two methods over the seeds that both have, and how likely luck explains
them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from srpfl.options.methods import METHODS
from srpfl.reproduce.summary import curves
from srpfl.runs.run import Run

FEWEST = 3  # seeds that a test takes


@dataclass(frozen=True)
class Paired:
    """A mean difference over seeds, its standard deviation, and the p-value of a t-test."""

    count: int
    spread: float
    p: float


def paired(differences: Sequence[float]) -> Paired:
    """The two-sided t-test of a mean difference of zero.

    >>> round(paired([1.0, 2.0, 3.0]).p, 4)
    0.0742
    """
    spread, free = stdev(differences), len(differences) - 1
    if not spread:
        return Paired(free + 1, 0.0, 0.0 if fmean(differences) else 1.0)
    t = abs(fmean(differences)) / spread * math.sqrt(free + 1)
    # Student's t is √f tan θ, where θ has a density like cos(θ)^(f-1).
    angles = np.linspace(0, math.pi / 2, 100_001)
    density = np.cos(angles) ** (free - 1)
    beyond = angles > math.atan(t / math.sqrt(free))
    return Paired(free + 1, spread, float(density[beyond].sum() / density.sum()))


def paired_with_twins(runs: Sequence[Run]) -> dict[str, Paired]:
    """By method, its final accuracy less its twin's, where both have enough seeds."""
    final = {curve.name: dict(zip(curve.seeds, curve.final(), strict=True))
             for curve in curves(runs)}  # fmt: skip
    found = {}
    for name, mine in final.items():
        theirs: Mapping[int, float] = final.get(METHODS[name].twin or "", {})
        both = [seed for seed in mine if seed in theirs]
        if len(both) >= FEWEST:
            found[name] = paired([mine[seed] - theirs[seed] for seed in both])
    return found

"""What secure sums add to the time of a round, on any other clock.

All who are asked must exchange keys and shares before the work, so a round begins with the slowest
of them all, for that little work. Masks come after the work and take the client's own time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from srpfl.clock.base import Clock, ComesAndGoes, FloatArray, IntArray, Work
from srpfl.core.fields import check_fields
from srpfl.errors import ConfigError, number


@dataclass(frozen=True, kw_only=True)
class Masked:
    """Another clock's times, with those of masks. ``update`` is what a local update takes, in
    seconds on the core on which masks take ``shares`` times N² and ``masks`` times N: a client that
    is slow at one is as slow at the other.

    >>> import numpy as np
    >>> from srpfl.clock import FixedExponential
    >>> plain, work = FixedExponential(), Work(*[np.ones(10, dtype=int)] * 2, 0, 0)
    >>> clocks = plain, Masked(clock=plain, update=0.02)
    >>> [round(float(c.times(0, 0, np.arange(10), 10, work).min()), 3) for c in clocks]
    [0.137, 0.335]
    """

    clock: Clock
    update: float
    shares: float = 2.1e-5  # seconds; measured by benchmarks/secure.py on a model of 6,240 numbers
    masks: float = 2.0e-4
    letters: float = 3.0  # more exchanges in a round than the one of model and answer

    def __post_init__(self) -> None:
        check_fields(self)
        if not number("the seconds of a local update", self.update) > 0:
            raise ConfigError(f"a local update takes some time, not {self.update} seconds")
        if isinstance(self.clock, ComesAndGoes):
            raise ConfigError("masks are counted only where clients do not come and go")

    @property
    def communication(self) -> float:
        return self.clock.communication * (1 + self.letters)

    @property
    def fixed(self) -> bool:
        return self.clock.fixed

    def times(
        self, seed: int, round: int, clients: IntArray, population: int, work: Work
    ) -> FloatArray:
        count = len(clients)
        own = self.clock.times(seed, round, clients, population, replace(work, share=1.0))
        alone = self.clock.times(seed, round, clients, population, work)
        before = own.max() * self.shares * count**2 / self.update
        found: FloatArray = alone + before + own * self.masks * count / self.update
        return found

"""How long a round waits for the first n answers, from those that came."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

ROUNDS = 50  # the mean of a rank's times is over about so many rounds at most

# Whoever is still missing is slower than those who came. Exponential times are the mildest case:
# each halving of the missing takes as long as the one before. Real tails are heavier, and a rank
# that was never waited for is guessed with halvings that grow by so much.
GROWTH = 1.5


@dataclass(frozen=True)
class Arrivals:
    """Mean times of some ranks: {n: (mean time of the n-th answer, rounds it is the mean of)}."""

    asked: int  # N
    ranks: Mapping[int, tuple[float, int]] = field(default_factory=dict)

    def after(self, times: Sequence[float], ranks: Sequence[int]) -> Arrivals:
        """With one more round, in which answers came at these times, in order."""
        known = dict(self.ranks)
        for rank in (*ranks, len(times)):
            if rank <= len(times):
                mean, rounds = known.get(rank, (0.0, 0))
                rounds = min(ROUNDS, rounds + 1)
                known[rank] = mean + (times[rank - 1] - mean) / rounds, rounds
        allowed = {*ranks, max(known)}  # a rank between the usual ones is kept while it is the last
        return Arrivals(self.asked, {n: known[n] for n in sorted(known) if n in allowed})

    def wait_for(self, n: int) -> float:
        """The time until n answers are there: seen, or between two that were, or guessed.

        >>> seen = Arrivals(asked=8).after([0.1, 0.2, 0.4, 0.6], ranks=[2, 4, 8])
        >>> seen.wait_for(2), round(seen.wait_for(3), 2), seen.wait_for(8) > 1.2
        (0.2, 0.4, True)
        """
        last = max(self.ranks)
        if n <= last:
            above = min(rank for rank in self.ranks if rank >= n)
            below = max((rank for rank in self.ranks if rank <= n), default=0)
            share = (n - below) / (above - below) if above > below else 0.0
            return self._time(below) + share * (self._time(above) - self._time(below))
        # The pace of the later half of those who came: one unit per factor e of the missing.
        half = max((rank for rank in self.ranks if rank <= last // 2), default=0)
        pace = (self._time(last) - self._time(half)) / self._shrunk(half, last)
        halvings = self._shrunk(last, n) / math.log(2)
        return self._time(last) + pace * math.log(2) * (GROWTH**halvings - 1) / math.log(GROWTH)

    def _time(self, rank: int) -> float:
        return self.ranks[rank][0] if rank else 0.0

    def _shrunk(self, low: int, high: int) -> float:
        """ln of how often the missing shrank; H_{N−low} − H_{N−high} to a few per cent."""
        return math.log((self.asked - low + 0.5) / (self.asked - high + 0.5))

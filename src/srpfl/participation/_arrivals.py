"""How long a round waits for the first n answers, from those that came."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

ROUNDS = 50  # a mean gap is over about so many rounds at most

# Clients that are still missing are slower than those who came. Exponential times are the mildest
# case: each halving of the missing takes as long as the one before. Real tails are heavier, and a
# rank that was never waited for is guessed with halvings that grow by so much.
GROWTH = 1.5


@dataclass(frozen=True)
class Arrivals:
    """The mean gaps between some ranks, as far up as answers were ever waited for.

    Gaps and not times: those of the first few answers are known from many rounds and those of the
    last from few, and a mean over one slow round must not come out above a mean over many.

    >>> seen = Arrivals(asked=8, ranks=(1, 2, 4, 8)).after([0.1, 0.2, 0.4, 0.6])
    >>> seen.wait_for(2), round(seen.wait_for(4), 2), seen.wait_for(8) > 1.2
    (0.2, 0.6, True)
    """

    asked: int  # N
    ranks: Sequence[int]  # ascending from 1
    gaps: Sequence[float] = ()  # mean time from the rank before; as many as are known
    rounds: Sequence[int] = ()  # of how many rounds each is the mean

    def after(self, times: Sequence[float]) -> Arrivals:
        """With one more round, in which answers came at these times, in order."""
        gaps, rounds, before = list(self.gaps), list(self.rounds), 0.0
        for place, rank in enumerate(self.ranks):
            if rank > len(times):
                break
            now = times[rank - 1]
            if place == len(gaps):
                gaps.append(0.0)
                rounds.append(0)
            rounds[place] = min(ROUNDS, rounds[place] + 1)
            gaps[place] += (now - before - gaps[place]) / rounds[place]
            before = now
        return Arrivals(self.asked, self.ranks, gaps, rounds)

    @property
    def seen(self) -> int:
        """The most answers that were ever waited for, among the ranks."""
        return self.ranks[len(self.gaps) - 1] if self.gaps else 0

    def wait_for(self, n: int) -> float:
        """The time until n answers are there, n being one of the ranks: a mean or a guess."""
        place = self.ranks.index(n)
        if place < len(self.gaps):
            return math.fsum(self.gaps[: place + 1])
        last, time = self.ranks[len(self.gaps) - 1], math.fsum(self.gaps)
        halvings = self._shrunk(last, n) / math.log(2)
        grown = (math.pow(GROWTH, halvings) - 1) / math.log(GROWTH)  # Σ of the growing halvings
        return time + self._pace() * math.log(2) * grown

    def _pace(self) -> float:
        """Time per factor e of the missing: since the first answer, or of late if that is slower.

        What the first one took says little: all may take as long, and then the others follow at
        once. Where it is all there is, times are taken for exponential.
        """
        known = self.ranks[: len(self.gaps)]
        last = known[-1]
        if last == 1:
            return self.gaps[0] / self._shrunk(0, 1)
        half = max(1, sum(rank <= last // 2 for rank in known))
        return max(
            math.fsum(self.gaps[place:]) / self._shrunk(known[place - 1], last)
            for place in (1, half)
        )

    def _shrunk(self, low: int, high: int) -> float:
        """ln of how often the missing shrank; H_{N−low} − H_{N−high} to a few per cent."""
        return math.log((self.asked - low + 0.5) / (self.asked - high + 0.5))

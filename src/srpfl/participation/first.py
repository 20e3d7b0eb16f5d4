"""Wait for a fixed number of answers, or for a fixed time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from srpfl.errors import ConfigError
from srpfl.participation.base import (
    STAGE,
    TOLD_IF_CHANGED,
    Call,
    Memory,
    Sampling,
    checked_start,
)


@dataclass(frozen=True, kw_only=True)
class FirstN(Sampling):
    """The first n answers of those asked; a tenth of them by default.

    >>> FirstN(n=3).call({}, round=4, population=10)
    Call(ask=10, wait=3, stage=0, draw=4, deadline=None, grace=0.0)
    """

    n: int | None = None

    def begin(self, population: int) -> Memory:
        checked_start(self.n, self.asked(population))
        return super().begin(population)

    def call(self, memory: Memory, round: int, population: int) -> Call:
        asked = self.asked(population)
        return Call(
            ask=asked, wait=checked_start(self.n, asked), draw=self.drawn(round, round // STAGE)
        )


@dataclass(frozen=True, kw_only=True)
class Deadline(Sampling):
    """All answers that arrive in time; if there is none, the first one, however late.

    With ``partial=True`` clients that are not done by then send what they have, in tenths of their
    local work: FedProx's partial work (Li et al., MLSys 2020).

    >>> Deadline(seconds=2.0).call({}, round=0, population=10)
    Call(ask=10, wait=10, stage=0, draw=0, deadline=2.0, grace=0.0)
    """

    seconds: float = 1.0
    partial: bool = field(default=False, metadata=TOLD_IF_CHANGED)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise ConfigError(f"the deadline must be a positive number, not {self.seconds}")

    def call(self, memory: Memory, round: int, population: int) -> Call:
        asked = self.asked(population)
        return Call(
            ask=asked,
            wait=asked,
            draw=self.drawn(round, round // STAGE),
            deadline=self.seconds,
            partial=self.partial,
        )

"""Deadlines that follow from the answers so far."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from srpfl.errors import ConfigError, number
from srpfl.participation.base import STAGE, TOLD_IF_CHANGED, Call, Memory, Outcome, Sampling
from srpfl.participation.selecting import Seen, seen_after


@dataclass(frozen=True, kw_only=True)
class TypicalDeadline(Sampling):
    """All answers within ``times`` a client's typical time; if there is none, the first one.

    The typical time is taken over each client's last answer, one that came too late counting as
    just late. ``typical="median"`` is the usual choice. ``typical="speed"`` is that of Reisizadeh
    et al., "Robust and communication-efficient collaborative learning" (NeurIPS 2019): the time
    that a client of mean speed takes, which is the harmonic mean. The first round waits for
    everyone.
    """

    times: float = 1.0
    typical: Literal["median", "speed"] = "median"
    partial: bool = field(default=False, metadata=TOLD_IF_CHANGED)  # see Deadline

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < number("times", self.times) < math.inf:
            raise ConfigError(f"times must be a positive number, not {self.times}")
        if self.typical not in ("median", "speed"):
            raise ConfigError(f"typical must be 'median' or 'speed', not '{self.typical}'")

    def begin(self, population: int) -> Memory:
        return {**super().begin(population), "seen": {}}

    def call(self, memory: Memory, round: int, population: int) -> Call:
        asked, deadline = self.asked(population), self.deadline(memory["seen"])
        draw = self.drawn(round, round // STAGE)
        return Call(ask=asked, wait=asked, draw=draw, deadline=deadline, partial=self.partial)

    def deadline(self, seen: Seen) -> float | None:
        if not seen:
            return None
        times = np.array([each["time"] for each in seen.values()])
        if self.typical == "median":
            return self.times * float(np.median(times)) or None
        return self.times / float(np.mean(1 / np.maximum(times, 1e-30)))

    def learn(self, memory: Memory, outcome: Outcome) -> Memory:
        return {**memory, "seen": seen_after(memory["seen"], outcome)}

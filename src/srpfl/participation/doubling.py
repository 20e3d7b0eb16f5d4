"""The paper's schedule: begin with the fastest few and double their number stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from srpfl.errors import ConfigError
from srpfl.participation.base import Call, Memory, Sampling, checked_start


@dataclass(frozen=True, kw_only=True)
class Doubling(Sampling):
    """Wait for the first n answers; n doubles every ``every`` rounds and never exceeds N.

    ``schedule`` replaces that by explicit stages (n, rounds); the last one lasts for ever.

    >>> policy = Doubling(start=10, every=10)
    >>> [policy.call({}, round, population=100).wait for round in (0, 9, 10, 20, 30, 40, 99)]
    [10, 10, 20, 40, 80, 100, 100]
    """

    start: int | None = None
    every: int = 10
    schedule: Sequence[tuple[int, int]] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every < 1:
            raise ConfigError(f"a stage lasts at least one round, not {self.every}")
        if self.schedule is not None and (
            not self.schedule or any(n < 1 or rounds < 0 for n, rounds in self.schedule)
        ):
            raise ConfigError(
                "a schedule is a list of stages (clients, rounds) with at least one client each"
            )

    def begin(self, population: int) -> Memory:
        asked = self.asked(population)
        if self.schedule is None:
            checked_start(self.start, asked)
        elif (largest := max(n for n, _ in self.schedule)) > asked:
            raise ConfigError(
                f"the schedule waits for {largest} clients but only {asked} are asked"
            )
        return super().begin(population)

    def call(self, memory: Memory, round: int, population: int) -> Call:
        asked = self.asked(population)
        if self.schedule is None:
            stage = round // self.every
            # The number of doublings is capped: 2**stage would grow without bound.
            wait = checked_start(self.start, asked)
            while stage > 0 and wait < asked:
                wait, stage = min(asked, 2 * wait), stage - 1
            stage = round // self.every - stage
        else:
            stage = _stage_at(self.schedule, round)
            wait = self.schedule[stage][0]
        # Samples keep changing with the paper's stages after n has come to N.
        period = round // self.every if self.schedule is None else stage
        return Call(ask=asked, wait=wait, stage=stage, draw=self.drawn(round, period))


def _stage_at(schedule: Sequence[tuple[int, int]], round: int) -> int:
    ends = 0
    for stage, (_, rounds) in enumerate(schedule):
        ends += rounds
        if round < ends:
            return stage
    return len(schedule) - 1

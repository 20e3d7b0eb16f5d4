"""Clients that are phones: how fast, when they can be reached, over which network."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from srpfl.clock.base import Clock, ComesAndGoes, FloatArray, IntArray, Work
from srpfl.clock.draws import uniforms, wholes
from srpfl.clock.exponential import LONGEST, FixedExponential, check_communication
from srpfl.clock.traces import numbers, stays_from, throughputs_from
from srpfl.core.fields import check_fields
from srpfl.errors import ConfigError, DataError, number


@dataclass(frozen=True, kw_only=True)
class Phones:
    """T_i by a phone's model, its network at the time, and its owner.

    ``traces`` is a folder with ``intervals.csv`` and ``devices.csv`` (when each phone can be
    reached; a trace begins again when it ends) and ``training_latency.csv``, whose column
    ``resnet_latency`` counts as relative speed: a phone of median speed takes
    ``seconds_per_sample``. ``bandwidth`` is a CSV file of throughput over time (trace_id, time_s,
    mbit_s); without it bytes cost nothing. Each client gets a phone, a model and a network of its
    own by the seed. With ``always=True`` phones are never away; ``dropout`` is the share of asks
    that are never answered.
    """

    traces: str | Path
    bandwidth: str | Path | None = None
    seconds_per_sample: float = 0.01
    always: bool = False
    dropout: float = 0.0
    communication: float = 0.0

    fixed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self)
        check_communication(self.communication)
        check_share("the dropout", self.dropout)
        if not 0 < number("seconds_per_sample", self.seconds_per_sample) < LONGEST:
            raise ConfigError(
                f"seconds_per_sample must be a positive number, not {self.seconds_per_sample}"
            )
        _ = self._speeds  # read now: a wrong file is found before the run
        if not self.always:
            self._phones()
        if self.bandwidth is not None:
            throughputs_from(str(self.bandwidth))

    def times(
        self, seed: int, round: int, clients: IntArray, population: int, work: Work
    ) -> FloatArray:
        speeds = self._speeds
        model = wholes(seed, "device", clients, population, len(speeds))
        computing: FloatArray = work.samples * self.seconds_per_sample * speeds[model] * work.share
        times = computing
        if self.bandwidth is not None:
            times = computing + self._moving(seed, clients, population, work, computing)
        gone = uniforms(seed, "dropout", clients, population, round) < self.dropout
        return np.where(gone, math.inf, times)

    def stays(
        self, seed: int, clients: IntArray, population: int, time: float
    ) -> tuple[FloatArray, FloatArray]:
        if self.always:
            return np.zeros(len(clients)), np.full(len(clients), math.inf)
        phones = self._phones()
        owned = wholes(seed, "phone", clients, population, len(phones))
        found = np.array([phones[phone].at(time) for phone in owned.tolist()])
        return found[:, 0], found[:, 1]

    def _moving(
        self, seed: int, clients: IntArray, population: int, work: Work, computing: FloatArray
    ) -> FloatArray:
        """The model goes down when the client begins and its answer up when it has computed."""
        networks = throughputs_from(str(self.bandwidth))
        used = wholes(seed, "network", clients, population, len(networks))
        down, up = (np.broadcast_to(each, len(clients)) for each in (work.down, work.up))
        moving = []
        for place, network in enumerate(used.tolist()):
            first = networks[network].seconds(float(down[place]), work.start)
            then = work.start + first + float(computing[place])
            moving.append(first + networks[network].seconds(float(up[place]), then))
        return np.array(moving)

    @property
    def _speeds(self) -> FloatArray:
        return relative_latencies(str(Path(self.traces) / "training_latency.csv"))

    def _phones(self) -> Any:
        folder = Path(self.traces)
        return stays_from(str(folder / "intervals.csv"), str(folder / "devices.csv"))


@dataclass(frozen=True, kw_only=True)
class Dropouts:
    """Another clock, with a share of asks that are never answered.

    >>> work = Work(*[np.ones(100, dtype=int)] * 2, 0, 0)
    >>> times = Dropouts(share=0.3).times(0, 0, np.arange(100), 100, work)
    >>> bool(10 < np.isinf(times).sum() < 50)
    True
    """

    clock: Clock = field(default_factory=FixedExponential)
    share: float = 0.1

    fixed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self)
        check_share("the share of dropouts", self.share)
        if isinstance(self.clock, ComesAndGoes):
            raise ConfigError("the clients of this clock come and go by themselves")

    @property
    def communication(self) -> float:
        return self.clock.communication

    def times(
        self, seed: int, round: int, clients: IntArray, population: int, work: Work
    ) -> FloatArray:
        times = self.clock.times(seed, round, clients, population, work)
        gone = uniforms(seed, "dropout", clients, population, round) < self.share
        return np.where(gone, math.inf, times)


@lru_cache(maxsize=4)
def relative_latencies(file: str) -> FloatArray:
    """How long each model takes beside the median one; a missing one is 0 in the file."""
    found = np.array([row[0] for row in numbers(file, ["resnet_latency"]) if row[0] > 0])
    if not len(found):
        raise DataError(f"{file} has no latency above zero")
    relative: FloatArray = found / np.median(found)
    return relative


def check_share(what: str, share: float) -> None:
    """Refuse a share that would leave nobody, or is none."""
    if not 0 <= number(what, share) < 1:
        raise ConfigError(f"{what} is a share from 0 to below 1, not {share}")

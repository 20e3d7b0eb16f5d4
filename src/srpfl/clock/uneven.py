"""Speeds that are not exponential: heavy tails, two kinds of device, all the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from srpfl.clock.base import FloatArray, IntArray, Work
from srpfl.clock.draws import slowest, uniforms
from srpfl.clock.exponential import LONGEST, check_communication, check_rate
from srpfl.core.fields import check_fields
from srpfl.errors import ConfigError, number


@dataclass(frozen=True, kw_only=True)
class _Fixed:
    rate: float = 1.0  # the fastest possible client takes 1/rate
    communication: float = 0.0  # C

    fixed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self)
        check_rate(self.rate)
        check_communication(self.communication)


@dataclass(frozen=True, kw_only=True)
class Pareto(_Fixed):
    """P(T_i > t) = t^(−shape) for t ≥ 1, drawn once per client: a few take very long.

    With the default shape the mean is 3 and the variance infinite.

    >>> work = Work(*[np.ones(4, dtype=int)] * 2, 0, 0)
    >>> bool((Pareto().times(0, 0, np.arange(4), 4, work) >= 1).all())
    True
    """

    shape: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < number("the shape of Pareto times", self.shape) < math.inf:
            raise ConfigError(f"the shape of Pareto times must be positive, not {self.shape}")

    def times(
        self, seed: int, round: int, clients: IntArray, population: int, work: Work
    ) -> FloatArray:
        with np.errstate(over="ignore"):  # with a tiny shape some take for ever
            times: FloatArray = (1 - uniforms(seed, "speed", clients, population)) ** (
                -1 / self.shape
            )
        return times / self.rate * work.share


@dataclass(frozen=True, kw_only=True)
class TwoGroups(_Fixed):
    """Most clients take 1, and a random fifth of them ten times as long.

    >>> work = Work(*[np.ones(10, dtype=int)] * 2, 0, 0)
    >>> sorted(TwoGroups().times(0, 0, np.arange(10), 10, work).tolist())[-3:]
    [1.0, 10.0, 10.0]
    """

    slow: float = 0.2  # the slow group's part of the population
    factor: float = 10.0  # how many times as long they take

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= number("the slow part", self.slow) <= 1:
            raise ConfigError(f"the slow part must be between 0 and 1, not {self.slow}")
        if not 1 <= number("the slow clients' factor", self.factor) <= LONGEST:
            raise ConfigError(f"the slow clients' factor must be at least 1, not {self.factor}")

    def times(
        self, seed: int, round: int, clients: IntArray, population: int, work: Work
    ) -> FloatArray:
        slow = slowest(seed, "speed", clients, population, self.slow)
        return np.where(slow, self.factor, 1.0) / self.rate * work.share


@dataclass(frozen=True, kw_only=True)
class Equal(_Fixed):
    """Every client takes the same time: nobody is a straggler.

    >>> Equal(rate=2.0).times(0, 0, np.arange(3), 3, Work(*[np.ones(3, dtype=int)] * 2, 0, 0))
    array([0.5, 0.5, 0.5])
    """

    def times(
        self, seed: int, round: int, clients: IntArray, population: int, work: Work
    ) -> FloatArray:
        return np.full(len(clients), 1 / self.rate) * work.share

"""The paper's clocks: exponential times, fixed or drawn anew."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from srpfl.clock.base import FloatArray, IntArray, Work
from srpfl.errors import ConfigError
from srpfl.randomness import stream


@dataclass(frozen=True, kw_only=True)
class _Exponential:
    rate: float = 1.0  # λ
    communication: float = 0.0  # C

    def __post_init__(self) -> None:
        check_rate(self.rate)
        check_communication(self.communication)


@dataclass(frozen=True, kw_only=True)
class FixedExponential(_Exponential):
    """T_i ~ Exp(λ), drawn once per client.

    >>> import numpy as np
    >>> clock, work = FixedExponential(rate=1.0), Work(*[np.ones(2, dtype=int)] * 2, 0, 0)
    >>> first, second = (clock.times(0, r, np.array([3, 5]), 10, work) for r in (0, 1))
    >>> bool((first == second).all())
    True
    """

    fixed: ClassVar[bool] = True

    def times(
        self, seed: int, round: int, clients: IntArray, population: int, work: Work
    ) -> FloatArray:
        return _speeds(seed, population)[clients] / self.rate


@dataclass(frozen=True, kw_only=True)
class IIDExponential(_Exponential):
    """T_i ~ Exp(λ) afresh for every client in every round: the theory's model."""

    fixed: ClassVar[bool] = False

    def times(
        self, seed: int, round: int, clients: IntArray, population: int, work: Work
    ) -> FloatArray:
        return stream(seed, "speed", round).exponential(size=population)[clients] / self.rate


@dataclass(frozen=True, kw_only=True)
class DynamicExponential(_Exponential):
    """λ_i ~ U[1/N, 1] once per client, T_i ~ Exp(λ·λ_i) afresh in every round.

    N is the number of clients that a round asks.
    """

    fixed: ClassVar[bool] = False

    def times(
        self, seed: int, round: int, clients: IntArray, population: int, work: Work
    ) -> FloatArray:
        low = 1 / len(clients)
        rates = low + (1 - low) * _uniform(seed, population)[clients]
        draws = stream(seed, "speed", round).exponential(size=population)[clients]
        times: FloatArray = draws / (self.rate * rates)
        return times


def check_rate(rate: float) -> None:
    if not 1e-100 < rate < 1e100:  # beyond that, times would not be numbers any more
        raise ConfigError(f"the rate of a clock must be a positive number, not {rate}")


def check_communication(communication: float) -> None:
    if not (math.isfinite(communication) and communication >= 0):
        raise ConfigError(
            f"the cost of communication must be zero or a positive number, not {communication}"
        )


@lru_cache(maxsize=8)
def _speeds(seed: int, population: int) -> FloatArray:
    return stream(seed, "speed").exponential(size=population)


@lru_cache(maxsize=8)
def _uniform(seed: int, population: int) -> FloatArray:
    return stream(seed, "rate").random(size=population)

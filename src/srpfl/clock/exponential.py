"""The paper's clocks: exponential times, fixed or drawn again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from srpfl.clock.base import FloatArray, IntArray, Work
from srpfl.clock.draws import exponentials, uniforms
from srpfl.core.fields import check_fields
from srpfl.errors import ConfigError, number

LONGEST = 1e100  # time or cost of a round: sums of more would not be numbers


@dataclass(frozen=True, kw_only=True)
class _Exponential:
    rate: float = 1.0  # λ
    communication: float = 0.0  # C

    def __post_init__(self) -> None:
        check_fields(self)
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
        return exponentials(seed, "speed", clients, population) / self.rate * work.share


@dataclass(frozen=True, kw_only=True)
class IIDExponential(_Exponential):
    """T_i ~ Exp(λ) afresh for every client in every round: the theory's model."""

    fixed: ClassVar[bool] = False

    def times(
        self, seed: int, round: int, clients: IntArray, population: int, work: Work
    ) -> FloatArray:
        draws = exponentials(seed, "speed", clients, population, round)
        return draws / self.rate * work.share


@dataclass(frozen=True, kw_only=True)
class DynamicExponential(_Exponential):
    """λ_i ~ U[1/N, 1] once per client, T_i ~ Exp(λ·λ_i) afresh in every round.

    N is the number of clients that a round asks, or that are at work at any time.
    """

    fixed: ClassVar[bool] = False

    def times(
        self, seed: int, round: int, clients: IntArray, population: int, work: Work
    ) -> FloatArray:
        low = 1 / (work.asked or len(clients))
        rates = low + (1 - low) * uniforms(seed, "rate", clients, population)
        draws = exponentials(seed, "speed", clients, population, round)
        times: FloatArray = draws / (self.rate * rates) * work.share
        return times


def check_rate(rate: float) -> None:
    """Refuse a rate that would make times that are no numbers."""
    if not 1 / LONGEST < number("the rate of a clock", rate) < LONGEST:
        raise ConfigError(f"the rate of a clock must be a positive number, not {rate}")


def check_communication(communication: float) -> None:
    """Refuse a cost that no round could have."""
    if not 0 <= number("the cost of communication", communication) <= LONGEST:
        raise ConfigError(
            f"the cost of communication must be zero or a positive number, not {communication}"
        )

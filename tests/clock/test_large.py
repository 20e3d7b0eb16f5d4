"""Large populations: a client's times have the clock's distribution and do not depend on others."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import srpfl
from srpfl.clock.base import Work
from srpfl.clock.draws import LARGE, normal_pairs, wholes

POPULATION = 10**12  # an array of that size would not fit anywhere


def times(clock: srpfl.clock.Clock, clients: np.ndarray, round: int = 0) -> np.ndarray:
    ones = np.ones(len(clients), dtype=np.int64)
    return clock.times(0, round, clients, POPULATION, Work(ones, ones, 0, 0))


CLOCKS = [
    (srpfl.FixedExponential(rate=2.0), stats.expon(scale=0.5).cdf),
    (srpfl.IIDExponential(rate=2.0), stats.expon(scale=0.5).cdf),
    (srpfl.clock.Pareto(shape=1.5), stats.pareto(1.5).cdf),
]


@pytest.mark.parametrize(("clock", "cdf"), CLOCKS)
def test_times_have_their_distribution(clock, cdf) -> None:
    found = times(clock, np.arange(20_000) * 10**7)
    assert stats.kstest(found, cdf).pvalue > 0.001
    assert abs(stats.pearsonr(found[1:], found[:-1]).statistic) < 0.03


@pytest.mark.parametrize(
    "clock", [*(clock for clock, _ in CLOCKS), srpfl.DynamicExponential(), srpfl.clock.TwoGroups()]
)
def test_a_client_takes_as_long_whoever_else_is_asked(clock) -> None:
    one = times(clock, np.array([5, 10**11, 77]))
    other = times(clock, np.array([10**11, 4, 6]))
    assert one[1] == other[0]
    assert (times(clock, np.array([5, 10**11, 77]), round=1) == one).all() == clock.fixed


def test_a_part_is_slow_and_devices_and_networks_are_spread_evenly() -> None:
    clients = np.arange(20_000)
    slow = times(srpfl.clock.TwoGroups(slow=0.2), clients) == 10.0
    assert abs(slow.mean() - 0.2) < 0.01
    counts = np.bincount(wholes(0, "device", clients, POPULATION, 7))
    assert stats.chisquare(counts).pvalue > 0.001
    pairs = normal_pairs(0, "bandwidth", clients, POPULATION, 3)
    assert stats.kstest(pairs.ravel(), "norm").pvalue > 0.001
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 0.03


def test_up_to_the_limit_the_streams_are_the_papers() -> None:
    ones = np.ones(2, dtype=np.int64)
    work, clients = Work(ones, ones, 0, 0), np.array([3, LARGE - 1])
    whole = srpfl.core.randomness.stream(0, "speed", 4).exponential(size=LARGE)
    assert (srpfl.IIDExponential().times(0, 4, clients, LARGE, work) == whole[clients]).all()

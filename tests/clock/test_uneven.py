"""Speeds that are not exponential, against their own formulas."""

from __future__ import annotations

import numpy as np
import pytest

from srpfl.clock import Clock, Equal, Pareto, TwoGroups, Work
from srpfl.errors import ConfigError
from srpfl.options.choices import build_clock
from srpfl.options.config import Config


def times(clock: Clock, clients: int = 10_000, round: int = 0) -> np.ndarray:
    ones = np.ones(clients, dtype=np.int64)
    return clock.times(0, round, np.arange(clients), clients, Work(ones, ones, 0, 0))


def test_pareto_times_have_pareto_tails() -> None:
    drawn = times(Pareto(shape=1.5, rate=2.0))
    assert drawn.min() >= 0.5
    for factor in (2.0, 4.0, 16.0):  # P(T > factor/rate) = factor^−1.5, to four standard errors
        share = factor**-1.5
        assert (drawn > factor / 2).mean() == pytest.approx(share, abs=4 * (share / 10_000) ** 0.5)


def test_exactly_the_slow_part_is_slow() -> None:
    drawn = times(TwoGroups(slow=0.3, factor=4.0), clients=10)
    assert sorted(drawn.tolist()) == [1.0] * 7 + [4.0] * 3


def test_equal_speeds_are_equal() -> None:
    assert set(times(Equal(rate=4.0))) == {0.25}


@pytest.mark.parametrize("clock", [Pareto(), TwoGroups(), Equal()])
def test_speeds_stay_and_depend_on_the_client_alone(clock: Clock) -> None:
    assert clock.fixed
    assert (times(clock, round=0) == times(clock, round=7)).all()
    some = np.array([5, 2])
    ones = np.ones(2, dtype=np.int64)
    alone = clock.times(0, 0, some, 10_000, Work(ones, ones, 0, 0))
    assert alone.tolist() == times(clock)[some].tolist()


def test_they_have_names_on_the_command_line() -> None:
    assert build_clock(Config(clock="pareto", communication=3.0)) == Pareto(communication=3.0)
    assert build_clock(Config(clock="two-groups")) == TwoGroups()
    assert build_clock(Config(clock="equal", rate=2.0)) == Equal(rate=2.0)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: Pareto(shape=0.0), "shape"),
        (lambda: Pareto(rate=-1.0), "rate"),
        (lambda: TwoGroups(slow=2.0), "slow part"),
        (lambda: TwoGroups(factor=0.5), "factor"),
        (lambda: Equal(communication=-1.0), "communication"),
    ],
)
def test_impossible_speeds_are_refused(wrong, says) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match=says):
        wrong()

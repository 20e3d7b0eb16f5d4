from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import srpfl
from srpfl.clock import Work
from srpfl.errors import ConfigError, DataError

CLOCKS = [srpfl.FixedExponential(), srpfl.DynamicExponential(), srpfl.IIDExponential()]


def work(count: int, samples: int = 1, moved: int = 0) -> Work:
    ones = np.ones(count, dtype=np.int64)
    return Work(ones, ones * samples, moved, moved)


def times(clock, clients, *, seed=0, round=0, population=100):
    return clock.times(seed, round, np.array(clients), population, work(len(clients)))


@pytest.mark.parametrize("clock", CLOCKS)
@given(seed=st.integers(0, 1000), round=st.integers(0, 1000), data=st.data())
def test_a_clients_time_does_not_depend_on_who_else_is_asked_or_in_which_order(
    clock, seed, round, data
) -> None:
    clients = data.draw(st.lists(st.integers(0, 49), min_size=2, max_size=20, unique=True))
    forth = times(clock, clients, seed=seed, round=round, population=50)
    back = times(clock, clients[::-1], seed=seed, round=round, population=50)
    assert (forth == back[::-1]).all()
    assert (forth >= 0).all()
    assert np.isfinite(forth).all()


def test_fixed_speeds_stay_and_the_others_change() -> None:
    everyone = range(100)
    for clock in CLOCKS:
        first, second = (times(clock, everyone, round=round) for round in (0, 1))
        assert (first == second).all() == clock.fixed


def test_the_means_are_those_of_the_distributions() -> None:
    many = range(20_000)
    size = len(many)
    # A mean of 20,000 exponentials has a standard error of 0.7 %: 4 % is more than five of them.
    for clock in (srpfl.FixedExponential(rate=2.0), srpfl.IIDExponential(rate=2.0)):
        assert times(clock, many, population=size).mean() == pytest.approx(0.5, rel=0.04)
    # With λ uniform on [1/N, 1] the expected time 1/λ has the mean ln(N)·N/(N-1); it is heavy in
    # its tail, so the check is on the rates: the median of T·λ over rounds is ln 2 for everyone.
    rounds = np.stack(
        [times(srpfl.DynamicExponential(), range(50), round=r, population=50) for r in range(2000)]
    )
    rates = np.log(2) / np.median(rounds, axis=0)
    assert rates.min() > 1 / 50 * 0.8
    assert rates.max() < 1.2
    assert rates.mean() == pytest.approx((1 + 1 / 50) / 2, rel=0.2)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_numbers_that_make_no_sense_are_refused(bad: float) -> None:
    with pytest.raises(ConfigError, match="cost of communication"):
        srpfl.FixedExponential(communication=bad)
    with pytest.raises(ConfigError, match="rate of a clock"):
        srpfl.IIDExponential(rate=bad)


def profiles(folder: Path) -> srpfl.DeviceProfiles:
    (folder / "phones.csv").write_text("model,cpu_float_score\nfast,4000\nslow,500\n")
    (folder / "networks.csv").write_text("down_mean,down_std,up_mean,up_std\n1000,0,500,0\n")
    return srpfl.DeviceProfiles(
        devices=str(folder / "phones.csv"),
        networks=str(folder / "networks.csv"),
        seconds_per_sample=0.1,
    )


def test_a_devices_time_is_its_samples_over_its_speed_plus_its_bytes_over_its_network(
    tmp_path: Path,
) -> None:
    clock = profiles(tmp_path)
    taken = clock.times(0, 0, np.arange(200), 200, work(200, samples=10, moved=2_000_000))
    transfer = 2 + 4  # 2 MB at 1000 kB/s down and 500 kB/s up
    fast, slow = 10 * 0.1 * 1000 / 4000 + transfer, 10 * 0.1 * 1000 / 500 + transfer
    assert set(np.round(taken, 9)) == {round(fast, 9), round(slow, 9)}
    assert not clock.fixed


def test_broken_profiles_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "phones.csv"
    with pytest.raises(DataError, match=r"cannot read the device profiles in .*phones.csv"):
        srpfl.DeviceProfiles(devices=str(path))
    path.write_text("model,score\na,1\n")
    with pytest.raises(DataError, match="no column 'cpu_float_score'"):
        srpfl.DeviceProfiles(devices=str(path))
    path.write_text("cpu_float_score\n100\nzero\n")
    with pytest.raises(DataError, match="row 2: cpu_float_score must be a positive number"):
        srpfl.DeviceProfiles(devices=str(path))

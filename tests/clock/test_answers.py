"""What a clock answers is checked: times, infinity for "never", or one sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import srpfl
import tiny
from sentence import one_sentence
from srpfl.clock import Work
from srpfl.clock.checks import communication_of, times_of
from srpfl.clock.exponential import LONGEST
from srpfl.errors import ConfigError, DataError, SrpflError


@dataclass(frozen=True)
class Says:
    """A clock that says what it is told to."""

    answer: Any
    communication: Any = 0.0
    fixed: bool = False

    def times(self, seed: int, round: int, clients: Any, population: int, work: Work) -> Any:
        return self.answer


def asked(answer: Any, clients: int = 3) -> np.ndarray:
    ones = np.ones(clients, dtype=np.int64)
    work = Work(ones, ones, 0, 0)
    return times_of(Says(answer), 0, 4, np.arange(clients) + 7, clients + 7, work)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ([1.0, -0.5, 2.0], "client 8 takes -0.5 in round 5"),
        ([1.0, 2.0, math.nan], "client 9 takes nan in round 5"),
        ([-math.inf, 1.0, 2.0], "client 7 takes -inf"),
        ([1.0, 2.0], "one time for each of the 3 clients .* in round 5 gave 2"),
        ([[1.0, 2.0, 3.0]], "gave an array of shape"),
        (1.0, "gave an array of shape"),
        (["soon", 1.0, 2.0], "must give numbers"),
        ([1j, 1.0, 2.0], "must give numbers"),
        ([True, True, True], "must give numbers"),
        (None, "gave an array of shape"),
        ([[1.0], [2.0, 3.0], 4.0], "must give numbers"),
        ([10**400, 1, 2], "must give numbers"),
        (np.ma.array([1.0, 2.0, 3.0], mask=[0, 0, 1]), "must give numbers"),
    ],
)
def test_answers_that_are_no_times_are_one_sentence(answer: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        asked(answer)
    assert "the clock Says" in str(caught.value)
    one_sentence(caught.value)


@given(st.lists(st.floats() | st.integers() | st.none() | st.text(max_size=3), max_size=5))
def test_a_list_of_times_is_taken_as_it_is_or_refused(answer: list[Any]) -> None:
    def is_time(value: Any) -> bool:
        return isinstance(value, (int, float)) and value >= 0

    try:
        taken = asked(answer)
    except ConfigError as error:
        one_sentence(error)
        assert len(answer) != 3 or not all(map(is_time, answer))
    else:
        assert taken.tolist() == [math.inf if value > LONGEST else float(value) for value in answer]


@pytest.mark.parametrize("cost", [-1.0, math.nan, math.inf, "much", None, 1j, [1.0, 2.0]])
def test_a_cost_of_communication_that_is_none_is_one_sentence(cost: Any) -> None:
    with pytest.raises(ConfigError, match="communication"):
        communication_of(Says([1.0], communication=cost))
    with pytest.raises(ConfigError, match="communication"):
        tiny.simulate(clock=Says(np.ones(6), communication=cost))


@pytest.mark.parametrize("cost", [np.array(2.0), torch.tensor(2.0), np.float32(2)])
def test_a_cost_of_communication_is_a_number_of_any_library(cost: Any) -> None:
    assert tiny.simulate(clock=Says(np.ones(6), communication=cost), rounds=1).communication == 2.0


def test_a_cost_that_goes_bad_in_the_middle_of_a_run_is_said() -> None:
    class Rising:
        fixed, asked = False, 0

        @property
        def communication(self) -> float:
            self.asked += 1
            return 1.0 if self.asked < 5 else -1.0

        def times(self, seed: int, round: int, clients: Any, population: int, work: Work) -> Any:
            return np.ones(len(clients))

    with pytest.raises(ConfigError, match="cost of communication must be zero or a positive"):
        tiny.simulate(clock=Rising(), participation=srpfl.Everyone())


def test_a_bad_time_of_a_client_that_nobody_waits_for_is_said_too() -> None:
    clock = Says([1.0, 2.0, 3.0, 4.0, 5.0, math.nan])
    with pytest.raises(ConfigError, match="client 5 takes nan in round 1"):
        tiny.simulate(clock=clock, participation=srpfl.FirstN(n=1))


def test_whoever_takes_for_ever_is_never_heard() -> None:
    clock = Says([1.0, math.inf, 3.0, math.inf, 5.0, 6.0])
    run = tiny.simulate(clock=clock, participation=srpfl.Everyone(), rounds=2)
    for record in run.rounds:
        assert record.participants == [0, 2, 4, 5]
        assert record.late == []
        assert record.duration == 6.0
    assert run.rounds[-1].computing == 12.0


def test_if_all_take_for_ever_there_is_no_round() -> None:
    with pytest.raises(SrpflError, match="none of the 6 clients asked in round 1 ever answers"):
        tiny.simulate(clock=Says([math.inf] * 6), participation=srpfl.Everyone())


def phones(folder: Path, content: bytes) -> srpfl.DeviceProfiles:
    path = folder / "phones.csv"
    path.write_bytes(content)
    return srpfl.DeviceProfiles(devices=str(path))


def test_a_spreadsheets_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    assert phones(tmp_path, b"\xef\xbb\xbfcpu_float_score,model\n500,a\n")._scores.tolist() == [500]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"cpu_float_score\n1e-320\n", "row 1: cpu_float_score must be a positive number from"),
        (b"cpu_float_score\n1e300\n", "row 1: cpu_float_score must be a positive number from"),
        (b"cpu_float_score\nnan\n", "row 1: cpu_float_score must be a positive number"),
        (b"cpu_float_score\n-5\n", "row 1: cpu_float_score must be a positive number"),
        (b"cpu_float_score,model\n5," + b"x" * 200_000, "field larger than field limit"),
        (b"x" * 5000 + b"\n1\n", "no column 'cpu_float_score'"),
        (b"cpu_float_score\n\xff\xfe\n", "cannot read the device profiles"),
        (b"cpu_float_score\n", "holds no device profiles"),
        (b"cpu_float_score\n5\n3,5\n", "row 2: it has more values than there are columns"),
        (b"a\n1,2,3,4\n", "no column 'cpu_float_score' \\(its columns: a\\)"),
    ],
)
def test_bad_device_profiles_are_one_short_sentence(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    with pytest.raises(DataError, match=sentence) as caught:
        phones(tmp_path, content)
    assert len(str(caught.value)) < 500
    one_sentence(caught.value)


@given(content=st.binary(max_size=60))
def test_any_bytes_are_profiles_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    folder = tmp_path_factory.mktemp("devices")
    try:
        clock = phones(folder, b"cpu_float_score\n" + content)
    except DataError as error:
        one_sentence(error)
    else:
        ones = np.ones(3, dtype=np.int64)
        times = times_of(clock, 0, 0, np.arange(3), 3, Work(ones, ones, 10, 10))
        assert (times > 0).all()


@given(value=st.floats() | st.integers() | st.text(max_size=2) | st.none() | st.booleans())
@pytest.mark.parametrize(
    "make",
    [
        lambda value: srpfl.FixedExponential(rate=value),
        lambda value: srpfl.DynamicExponential(communication=value),
        lambda value: srpfl.clock.Pareto(shape=value),
        lambda value: srpfl.clock.TwoGroups(slow=value),
        lambda value: srpfl.clock.TwoGroups(factor=value),
    ],
)
def test_a_clock_with_any_number_gives_times_or_is_refused(make: Any, value: Any) -> None:
    try:
        clock = make(value)
    except ConfigError as error:
        one_sentence(error)
        return
    ones = np.ones(50, dtype=np.int64)
    times = times_of(clock, 0, 0, np.arange(50), 50, Work(ones, ones, 10, 10))
    assert np.isfinite(times).any() or getattr(clock, "shape", 1) < 1e-2  # all for ever
    assert communication_of(clock) >= 0

"""Clients that come and go, phones' traces, and work that is cut short."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srpfl
import tiny
from participation.scripted import Given, Leaving, World
from srpfl.clock import Dropouts, Phones, Work
from srpfl.clock.traces import stays_from
from srpfl.errors import ConfigError, DataError
from srpfl.loop.transport import NoAnswerError

FOREVER = 1e9


def test_who_is_away_is_not_asked_and_who_leaves_never_answers() -> None:
    """Client 0 stays; 1 leaves after 1.5 of its 2 seconds; 2 comes and goes by periods of 10."""
    clock = Leaving((1.0, 2.0, 3.0), periods=(FOREVER, FOREVER, 10.0), stay=(FOREVER, 1.5, 4.0))
    world = World(srpfl.Everyone(), clock)
    world.play()
    record = world.records[0]
    assert record.participants == [0, 2]
    assert record.lost == [1]
    assert record.duration == 3.0
    world.play()  # at 3: client 1 is gone for good, and 2 leaves at 4, before it is done
    record = world.records[1]
    assert (record.asked, record.participants, record.lost) == (2, [0], [2])
    assert record.duration == 1.0  # since then it is known that 2 will not answer
    assert float(world.parts.of(1)["n"]) == 0


def test_at_the_deadline_others_are_asked_in_the_place_of_those_who_never_answer() -> None:
    """One client is asked, and half of the asks are lost. Without a deadline nobody would know."""
    clock = Dropouts(share=0.5)
    run = tiny.simulate(participation=srpfl.Deadline(sample=1, seconds=9.0), clock=clock, rounds=12)
    lost = [len(record.lost) for record in run.rounds]
    assert {0, 1} < set(lost)
    for record in run.rounds:
        assert record.duration == pytest.approx(9.0 * len(record.lost) + record.arrivals[0])
    with pytest.raises(NoAnswerError, match=r"ask more of them, or set a deadline"):
        tiny.simulate(participation=srpfl.Everyone(sample=1), clock=clock, rounds=12)


def test_a_round_waits_until_somebody_comes() -> None:
    clock = Leaving((1.0, 2.0), periods=(10.0, 10.0), stay=(5.0, 5.0), communication=3.0)
    world = World(srpfl.Everyone(), clock)
    world.play()  # until 2, and 3 more for communication
    world.play()  # at 5 both have just left: they come again at 10
    assert world.records[0].duration == 2.0
    assert world.records[1].duration == 5.0 + 2.0
    assert world.records[1].arrivals == [6.0, 7.0]


def test_where_all_leave_others_are_asked() -> None:
    """Client 1 is first alone and never stays for long enough."""
    clock = Leaving((1.0, 5.0), periods=(FOREVER, 4.0), stay=(FOREVER, 2.0))
    world = World(srpfl.Everyone(), clock)

    class OnlyOne(srpfl.Everyone):
        def choose(self, memory: Any, call: Any, idle: Any, rng: Any) -> tuple[int, ...]:
            return (1,) if 1 in idle else (0,)

    world.participation = OnlyOne()
    world.play()
    record = world.records[0]
    assert record.participants == [0]
    assert record.lost == [1]
    assert record.duration == 2.0 + 1.0


@pytest.mark.parametrize(
    "answer", [None, 5.0, ([0.0], [9.0]), (["x"] * 2, [9.0] * 2), ([0.0] * 2,)]
)
def test_stays_that_are_none_are_one_sentence(answer: Any) -> None:
    class Odd(Given):
        def stays(self, seed: int, clients: Any, population: int, time: float) -> Any:
            return answer

    with pytest.raises(ConfigError, match="must give a begin and an end of a stay for each of"):
        World(srpfl.Everyone(), Odd((1.0, 2.0))).play()


def test_a_clock_whose_clients_never_come_is_said() -> None:
    class Never(Given):
        def stays(self, seed: int, clients: Any, population: int, time: float) -> Any:
            return np.full(len(clients), np.inf), np.full(len(clients), np.inf)

    with pytest.raises(NoAnswerError, match="no client can be reached"):
        World(srpfl.Everyone(), Never((1.0,))).play()


def test_at_the_deadline_clients_send_what_they_have() -> None:
    """In tenths of the work: 4 seconds of 5, 10 and 80 are 8, 4 and no tenths."""
    clock = Given((2.0, 5.0, 10.0, 80.0))
    world = World(srpfl.Deadline(seconds=4.0, partial=True), clock)
    plans: list[Any] = []
    train = world.engine.train

    def looking(jobs: Any) -> Any:
        plans.extend((job.clients, [p.step_count(10) for p in job.plans]) for job in jobs)
        return train(jobs)

    world.engine.train = looking  # type: ignore[method-assign]
    world.algorithm = srpfl.FedAvg(steps=10)
    world.restart()
    world.play()
    assert world.records[0].participants == [0, 1, 2]
    assert world.records[0].duration == 4.0
    assert plans == [([0], [10]), ([1], [8]), ([2], [4])]
    assert world.records[0].late == [3]


def test_partial_work_is_the_first_steps_of_the_whole() -> None:
    """A client that is cut short after one step of two is where it was after one step."""
    half, whole = (
        tiny.simulate(
            algorithm=srpfl.FedAvg(steps=steps),
            participation=srpfl.Deadline(seconds=seconds, partial=True),
            clock=srpfl.clock.Equal(),
            rounds=1,
            evaluate_every=0,
        )
        for steps, seconds in ((1, 2.0), (2, 0.5))
    )
    for name, value in half.state.shared.items():
        assert value.equal(whole.state.shared[name])


def test_dropouts_are_lost_and_the_rest_goes_on() -> None:
    for policy in (srpfl.Everyone(), srpfl.FedBuff(k=2)):
        run = tiny.simulate(participation=policy, clock=Dropouts(share=0.3), rounds=8)
        lost = sum(len(record.lost) for record in run.rounds)
        assert 0 < lost < sum(record.asked for record in run.rounds) / 2


def files(folder: Path) -> Path:
    (folder / "intervals.csv").write_text("device_id,start,end\n7,110,120\n7,150,150\n9,0,40\n")
    (folder / "devices.csv").write_text("device_id,trace_start,trace_end\n7,100,200\n8,,\n9,0,50\n")
    (folder / "training_latency.csv").write_text("resnet_latency\n10\n0\n20\n40\n")
    (folder / "bandwidth.csv").write_text("trace_id,time_s,mbit_s\n0,0,8\n0,1,8\n")
    return folder


def test_a_trace_begins_again_when_it_ends(tmp_path: Path) -> None:
    folder = files(tmp_path)
    phones = stays_from(str(folder / "intervals.csv"), str(folder / "devices.csv"))
    assert len(phones) == 2  # the one without a trace is left out
    assert [phones[0].at(time) for time in (0.0, 15.0, 20.0, 215.0)] == [
        (10.0, 20.0),
        (10.0, 20.0),
        (110.0, 120.0),
        (210.0, 220.0),
    ]
    assert phones[1].at(45.0) == (50.0, 90.0)


def test_times_follow_samples_bytes_and_the_hour(tmp_path: Path) -> None:
    folder = files(tmp_path)
    clock = Phones(
        traces=str(folder), bandwidth=str(folder / "bandwidth.csv"), seconds_per_sample=0.1
    )
    ones = np.ones(50, dtype=np.int64)

    def times(samples: int, bytes: int) -> Any:
        work = Work(ones, samples * ones, down=bytes, up=bytes)
        return clock.times(0, 0, np.arange(50), 50, work)

    assert set(np.round(times(10, 0), 9)) == {0.5, 1.0, 2.0}
    np.testing.assert_allclose(times(10, 500_000) - times(10, 0), 1.0)  # a megabyte at 8 Mbit/s
    (folder / "devices.csv").write_text("device_id\n1\n")
    stays_from.cache_clear()
    with pytest.raises(DataError, match="no column"):
        Phones(traces=str(folder))


TRACES = Path(os.environ.get("SRPFL_DATA", "../shared/data")) / "availability"


@pytest.mark.skipif(not TRACES.exists(), reason="the phones' traces are not here: set SRPFL_DATA")
def test_710_real_phones() -> None:
    phones = stays_from(str(TRACES / "intervals.csv"), str(TRACES / "devices.csv"))
    assert len(phones) == 710 - 6  # the others have intervals of no length alone
    run = tiny.simulate(
        data=tiny.data(clients=40),
        participation=srpfl.FedBuff(sample=10, k=3),
        clock=Phones(traces=str(TRACES), seconds_per_sample=1.0),
        rounds=10,
    )
    assert run.rounds[-1].computing > 0
    assert all(record.participants for record in run.rounds)

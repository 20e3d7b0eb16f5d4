"""Late answers that are kept: whose they are, how old, and what they do to the model."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import srpfl
import tiny
from participation.scripted import Given, Leaving, World, close, lowest_first
from srpfl.errors import ConfigError
from srpfl.loop.transport import NoAnswerError
from srpfl.options.choices import build_participation
from srpfl.options.config import Config
from srpfl.participation import Compass, FedAsync, FedBuff, SemiAsync
from srpfl.runs.flights import read_flights, told_flights

TIMES = (1.0, 2.0, 3.0, 4.5, 10.0)


def test_ten_answers_of_five_clients_by_hand() -> None:
    """Three are at work, and every second answer makes a version. Worked out on paper."""
    world = World(lowest_first(FedBuff)(sample=3, k=2), Given(TIMES))
    expected = [
        # participants, ages, end, at work afterwards (client, version, due)
        ([0, 1], [0, 0], 2.0, [(2, 0, 3.0), (3, 0, 5.5)]),
        ([0, 2], [0, 1], 3.0, [(1, 1, 5.0), (3, 0, 5.5)]),  # a tie: the lower number first
        ([0, 1], [0, 1], 5.0, [(3, 0, 5.5), (2, 2, 7.0)]),
        ([3, 0], [3, 0], 6.0, [(2, 2, 7.0), (1, 3, 7.5)]),
        ([0, 2], [0, 2], 7.0, [(1, 3, 7.5), (3, 4, 11.5)]),
    ]
    x = [1.0]  # of each version
    for clients, ages, end, aloft in expected:
        state = world.play()
        record = world.records[-1]
        assert record.participants == clients
        assert record.ages == ages
        assert state.computing == end
        assert [(f.client, f.version, f.due) for f in state.flights] == aloft
        assert state.versions.keys() == {version for _, version, _ in aloft}
        # x + 1/K Σ s(age)·Δ with s(age) = (1 + age)^-½ and Δ = y − x₀ = 0.9·x₀ + client + 1 − x₀
        moves = [
            (1 + age) ** -0.5 * (client + 1 - 0.1 * x[len(x) - 1 - age])
            for client, age in zip(clients, ages, strict=True)
        ]
        x.append(x[-1] + sum(moves) / 2)
        assert close(world.x, x[-1])
    assert [record.arrivals for record in world.records][3] == [4.5, 1.0]  # since they were asked
    assert float(world.parts.of(0)["n"]) == 5
    assert float(world.parts.of(3)["n"]) == 1
    assert 4 not in world.parts.trained


@pytest.mark.parametrize(
    ("choices", "weight"),
    [
        ({"staleness": "constant"}, lambda age: 0.6),
        ({"staleness": "hinge", "a": 10.0, "b": 1.0}, lambda age: 0.6 / (10 * max(0, age - 1) + 1)),
        ({"staleness": "polynomial", "a": 0.7}, lambda age: 0.6 * (age + 1) ** -0.7),
    ],
)
def test_fedasync_mixes_each_answer_by_its_age(choices: Any, weight: Any) -> None:
    world = World(lowest_first(FedAsync)(mixing=0.6, **choices), Given(TIMES))
    x, oldest = [1.0], 0
    for _ in range(12):
        world.play()
        [client], [age] = world.records[-1].participants, world.records[-1].ages
        alpha = weight(age)
        y = 0.9 * x[len(x) - 1 - age] + client + 1
        x.append((1 - alpha) * x[-1] + alpha * y)
        oldest = max(oldest, age)
        assert close(world.x, x[-1])
    assert oldest > 4


def test_fedbuffs_rate_is_on_top_of_the_age() -> None:
    one, half = (World(lowest_first(FedBuff)(k=1, lr=lr), Given(TIMES)) for lr in (1.0, 0.5))
    one.play()
    half.play()
    assert close(half.x - 1.0, (one.x - 1.0) / 2)


def test_a_bound_on_age_waits_or_drops() -> None:
    """Client 4 needs ten seconds. Either rounds wait for it, or its answer is thrown away."""
    waits = World(SemiAsync(k=1, max_age=2), Given(TIMES))
    waits.play(8)
    assert max(age for record in waits.records for age in record.ages) <= 2
    assert any(4 in record.participants for record in waits.records)
    drops = World(FedBuff(k=1, max_age=2), Given(TIMES))
    drops.play(20)
    assert max(age for record in drops.records for age in record.ages) <= 2
    assert any(4 in record.late for record in drops.records)
    assert 4 not in drops.parts.trained  # what is dropped is not kept either


def test_with_no_age_allowed_every_round_waits_for_all() -> None:
    world = World(SemiAsync(k=1, max_age=0), Given(TIMES))
    world.play(2)
    assert [sorted(record.participants) for record in world.records] == [[0, 1, 2, 3, 4]] * 2
    assert world.state.computing == 20.0


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
@pytest.mark.parametrize(
    "algorithm", [srpfl.FedAvg(), srpfl.FedRep(head_epochs=2), srpfl.SCAFFOLD(), srpfl.FedAdam()]
)
def test_with_equal_speeds_and_a_buffer_for_all_it_is_the_synchronous_method(
    engine: str, algorithm: Any
) -> None:
    clock = srpfl.clock.Equal(communication=3.0)
    runs = [
        tiny.simulate(
            algorithm=algorithm, participation=policy, clock=clock, engine=engine, rounds=4
        )
        for policy in (srpfl.Everyone(), FedBuff(k=6, sample=6))
    ]
    one, other = runs
    assert [r.participants for r in one.rounds] == [r.participants for r in other.rounds]
    for name, value in one.state.shared.items():
        assert torch.equal(value, other.state.shared[name]), name
    for client, part in one.parts.trained.items():
        for name, value in part.items():
            assert torch.equal(value, other.parts.trained[client][name]), name
    ends = [run.rounds[-1].time(run.config["communication"]) for run in runs]
    assert ends[0] == pytest.approx(ends[1], rel=1e-12)


def test_what_is_computed_ahead_changes_nothing() -> None:
    """Training everyone who is at work as one cohort, or each answer alone when it is due."""
    together = World(FedBuff(sample=4, k=1), Given(TIMES))
    alone = World(FedBuff(sample=4, k=1), Given(TIMES))
    bring = alone.transport.bring
    alone.transport.bring = (  # type: ignore[method-assign]
        lambda landed, aloft, versions, request: bring(landed, [], versions, request)
    )
    together.play(30)
    alone.play(30)
    assert together.records == alone.records
    assert together.x == alone.x
    assert len(together.engine.calls) < len(alone.engine.calls) == 30


def test_compass_gives_work_by_speed_so_that_answers_come_together() -> None:
    world = World(Compass(), Given((1.0, 2.0, 4.0, 8.0)))
    world.play(12)
    ends = [record.computing for record in world.records]
    late = world.records[4:]
    assert all(len(record.participants) >= 2 for record in late)
    assert ends == sorted(ends)
    assert {3} < {client for record in late for client in record.participants}


def check_conserved(world: World) -> None:
    """Every ask has come to one end, or to none yet; and nobody is at work twice."""
    asked = sum(record.asked for record in world.records)
    counted = sum(len(record.participants) for record in world.records)
    dropped = sum(len(record.late) for record in world.records)
    lost = sum(len(record.lost) for record in world.records)
    assert asked == counted + dropped + lost + len(world.state.flights)
    aloft = [flight.client for flight in world.state.flights]
    assert len(set(aloft)) == len(aloft)
    assert {f.version for f in world.state.flights} == world.state.versions.keys()
    kept = sum(float(world.parts.of(client)["n"]) for client in range(world.population))
    assert kept == counted  # what an answer leaves behind is there once for each that counted


@settings(max_examples=60, deadline=None)
@given(
    seconds=st.lists(st.integers(1, 12), min_size=2, max_size=6),
    stay=st.lists(st.integers(1, 20), min_size=6, max_size=6),
    concurrency=st.integers(1, 6),
    k=st.integers(1, 4),
    max_age=st.sampled_from([None, 0, 1, 3]),
    kind=st.sampled_from([FedBuff, SemiAsync]),
    comes=st.booleans(),
    stopped=st.integers(0, 7),
)
def test_every_answer_counts_once_or_is_dropped_once_or_lost_or_at_work(
    seconds: list[int],
    stay: list[int],
    concurrency: int,
    k: int,
    max_age: int | None,
    kind: Any,
    comes: bool,
    stopped: int,
) -> None:
    concurrency = min(concurrency, len(seconds))
    policy = kind(sample=concurrency, k=min(k, concurrency), max_age=max_age)
    times = tuple(map(float, seconds))
    clock: Any = Given(times)
    if comes:
        stays = tuple(float(each) for each in stay[: len(times)])
        clock = Leaving(times, periods=tuple(2 * each for each in stays), stay=stays)
    one, other = World(policy, clock), World(policy, clock)
    try:
        one.play(8)
    except NoAnswerError:
        assert comes  # nobody stays for as long as the work takes
        return
    other.play(stopped)
    # All that a process leaves behind when it is killed.
    told = json.loads(json.dumps(told_flights(other.state.flights)))
    other.state = dataclasses.replace(other.state, flights=read_flights(told))
    other.restart()
    other.play(8 - stopped)
    assert one.records == other.records
    assert one.x == other.x
    check_conserved(one)
    check_conserved(other)


class HighestLater(FedBuff):
    """Asks 0 and 1 first, and from the second round on whoever has the highest number."""

    def choose(self, memory: Any, call: Any, idle: Any, rng: Any) -> tuple[int, ...]:
        return tuple(sorted(idle, reverse=call.draw > 0)[: call.ask])


def test_a_client_asked_again_after_its_answer_was_dropped_works_from_what_it_was_sent() -> None:
    """All take as long. In the first round 0 counts; in the second 1 comes too late with its first
    answer, is asked again and counts. What had been computed for its first answer must go."""
    world = World(HighestLater(sample=2, k=1, max_age=0), Given((1.0, 1.0, 1.0)))
    expected = 1.0
    for client, late in [(0, []), (1, [1])]:
        world.play()
        assert (world.records[-1].participants, world.records[-1].late) == ([client], late)
        expected = 0.9 * expected + client + 1
        assert close(world.x, expected)


class Stop(srpfl.Watcher):
    """Ends the process's part of the run after a round, as a kill would."""

    def __init__(self, after: int) -> None:
        self.after = after

    def round(self, record: Any) -> None:
        if record.round == self.after:
            raise KeyboardInterrupt


@pytest.mark.parametrize("algorithm", [srpfl.FedRep(head_epochs=1), srpfl.SCAFFOLD()])
def test_a_folder_resumes_exactly_with_work_in_flight(tmp_path: Path, algorithm: Any) -> None:
    choices = {
        "algorithm": algorithm,
        "participation": FedBuff(sample=4, k=2),
        "clock": srpfl.DynamicExponential(),
        "rounds": 7,
    }
    whole = tiny.simulate(**choices, out=tmp_path / "whole")
    assert any(age for record in whole.rounds for age in record.ages)
    for after in (1, 4, 6):
        out = tmp_path / str(after)
        with pytest.raises(KeyboardInterrupt):
            tiny.simulate(**choices, out=out, watchers=[Stop(after)])
        resumed = tiny.simulate(**choices, out=out, resume=True)
        assert resumed.rounds == whole.rounds
        assert resumed.state.flights == whole.state.flights
        for name, value in whole.state.shared.items():
            assert torch.equal(value, resumed.state.shared[name])


@pytest.mark.parametrize(
    "algorithm",
    [srpfl.FedRep(), srpfl.LGFedAvg(), srpfl.Ditto(), srpfl.SCAFFOLD(), srpfl.FedNova()],
)
def test_any_algorithm_runs_with_late_answers(algorithm: Any) -> None:
    for policy in (FedBuff(k=2), FedAsync()):
        run = tiny.simulate(algorithm=algorithm, participation=policy, rounds=10)
        assert all(math.isfinite(record.loss) for record in run.rounds)


def test_communication_is_part_of_each_clients_time() -> None:
    """Each exchange costs C, as in a synchronous round; others are at work meanwhile."""
    world = World(lowest_first(FedBuff)(sample=5, k=5), Given(TIMES, communication=7.0))
    world.play()
    assert world.state.computing == 17.0
    assert world.records[0].arrivals == [8.0, 9.0, 10.0, 11.5, 17.0]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: FedBuff(k=0),
        lambda: FedBuff(lr=0.0),
        lambda: FedBuff(max_age=-1),
        lambda: FedBuff(k=9, sample=4).begin(10),
        lambda: FedAsync(mixing=1.5),
        lambda: FedAsync(staleness="old"),
        lambda: Compass(least=0.0),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        wrong()


@pytest.mark.parametrize("policy", ["fedbuff", "fedasync", "semi-async", "compass"])
def test_the_command_line_knows_them(policy: str) -> None:
    given = {"participation": policy, "sample": 0.5, "set": ["participation.staleness=constant"]}
    made = build_participation(Config.of(given), "everyone")
    assert made.sample == 0.5  # type: ignore[attr-defined]
    assert made.call(made.begin(10), 0, 10).late == "keep"


def test_a_round_of_thousands_is_heard_in_time_that_goes_with_their_number() -> None:
    """About a tenth of a second of computing for each thousand clients; where every answer looks
    through all of them it is minutes."""
    times = tuple(1.0 + client / 1000 for client in range(1500))
    world = World(FedBuff(sample=1500, k=1500), Given(times))
    began = time.process_time()
    world.play()
    assert time.process_time() - began < 5.0
    assert len(world.records[0].participants) == 1500

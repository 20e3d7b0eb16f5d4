"""Five clients and some ten events for each policy, worked out on paper."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from participation.scripted import Given, Leaving, World, close, lowest_first
from srpfl.participation import (
    Answer,
    Call,
    Compass,
    Deadline,
    FedAsync,
    FedBuff,
    FedCS,
    Oort,
    Outcome,
    OverSelection,
    PowerOfChoice,
    TiFL,
)
from srpfl.participation.divfl import greedy

Line = tuple[list[int], list[int], list[int], float]  # counted, their ages, dropped, end


def check(world: World, expected: list[Line], weigh: Any, of: str = "update") -> None:
    """Who counts when and how old; and x as the policy's paper has it, from Δ = client + 1 − 0.1·x
    at the version that the client was sent."""
    x = [1.0]
    for clients, ages, dropped, end in expected:
        world.play()
        record = world.records[-1]
        assert (record.participants, record.ages, record.late) == (clients, ages, dropped)
        assert world.state.computing == pytest.approx(end, rel=1e-12)
        moves = []
        for client, age in zip(clients, ages, strict=True):
            start = x[len(x) - 1 - age]
            y = 0.9 * start + client + 1
            moves.append(weigh(age) * (y - (start if of == "update" else x[-1])))
        x.append(x[-1] + sum(moves) / len(moves))
        assert close(world.x, x[-1])


def test_fedbuff_drops_what_is_too_old() -> None:
    """Three at work, every answer makes a version, and none may be two versions behind."""
    policy = lowest_first(FedBuff)(sample=3, k=1, max_age=1)
    world = World(policy, Given((1.0, 1.5, 5.0, 1.0, 9.0)))
    expected: list[Line] = [
        ([0], [0], [], 1.0),  # 0, 1 and 2 began at 0
        ([1], [1], [], 1.5),  # 0 began again at 1
        ([0], [1], [], 2.0),  # 1 began again at 1.5
        ([0], [0], [], 3.0),  # a tie with 1, whose number is higher
        ([0], [0], [1], 4.0),  # 1 is two versions behind at 3: it begins again
        ([1], [1], [], 4.5),
        ([0], [1], [], 5.0),  # a tie with 2
        ([0], [0], [2], 6.0),  # 2 is seven versions behind at 5
    ]
    check(world, expected, lambda age: (1 + age) ** -0.5)
    assert [(f.client, f.version, f.due) for f in world.state.flights] == [
        (1, 6, 6.0),
        (2, 7, 10.0),
    ]


def test_fedasync_by_hand() -> None:
    """All five are at work, and every answer is mixed in."""
    world = World(FedAsync(mixing=0.5, staleness="hinge", a=2.0, b=1.0),
                  Given((1.0, 2.0, 2.5, 6.0, 6.5)))  # fmt: skip
    expected: list[Line] = [
        ([0], [0], [], 1.0),
        ([0], [0], [], 2.0),  # a tie with 1
        ([1], [2], [], 2.0),
        ([2], [3], [], 2.5),
        ([0], [2], [], 3.0),  # sent after the second answer, at 2
        ([0], [0], [], 4.0),
        ([1], [3], [], 4.0),  # sent after the third, at 2
        ([0], [1], [], 5.0),  # sent after the sixth, at 4
        ([2], [4], [], 5.0),  # sent after the fourth, at 2.5
        ([0], [1], [], 6.0),  # sent after the eighth, at 5
        ([1], [3], [], 6.0),  # sent after the seventh, at 4
        ([3], [11], [], 6.0),
    ]
    check(world, expected, lambda age: 0.5 / (2 * max(0, age - 1) + 1), of="model")


def test_compass_by_hand() -> None:
    """All do a fifth of their work until they are known; then rounds are 1.05 long, what the
    fastest client takes and the slack. 16 seconds are four such rounds for a fifth of the work."""
    world = World(Compass(), Given((1.0, 2.0, 4.0, 8.0, 16.0)))
    expected: list[Line] = [
        ([0], [0], [], 0.2),
        ([1, 2, 0], [1, 1, 0], [], 1.25),  # at 0.4, 0.8 and, with all of its work, 1.2
        ([3, 2, 0, 1], [2, 0, 0, 0], [], 2.3),  # 1.6, 1.25 + 0.2·4, 1.25 + 1, 1.25 + 0.5·2
        ([2, 4, 0, 1], [0, 3, 0, 0], [], 3.35),
        ([3, 2, 0, 1], [1, 0, 0, 0], [], 4.4),  # 3 began at 2.3 with a fifth of 8 seconds
    ]
    check(world, expected, lambda age: (1 + age) ** -0.5)
    assert world.state.memory["times"] == pytest.approx(
        {"0": 1.0, "1": 2.0, "2": 4.0, "3": 8.0, "4": 16.0}
    )


def test_compass_does_not_take_communication_for_work() -> None:
    """An exchange costs 100 beside some seconds of work. Nobody gains from doing less of it than
    fits into 1.05·(100 + 1), of which 6.05 are left for work."""
    world = World(Compass(), Given((1.0, 2.0, 4.0, 8.0, 16.0), communication=100.0))
    world.play(2)
    memory = world.state.memory
    assert memory["times"] == pytest.approx({"0": 1.0, "1": 2.0, "2": 4.0, "3": 8.0, "4": 16.0})
    assert world.participation.effort(memory, range(5)) == [1.0, 1.0, 1.0, 0.7, 0.3]
    world.play(3)
    assert all(len(record.participants) == 5 for record in world.records[2:])


@pytest.mark.parametrize("policy", [FedBuff(sample=3, k=3), FedBuff(sample=2, k=2)])
def test_a_buffer_is_filled_by_those_who_come_later(policy: FedBuff) -> None:
    """Two are there from the beginning; the others come for ever at 5, 7 and 20."""
    begins = np.array([0.0, 0.0, 5.0, 7.0, 20.0])

    class Coming(Given):
        def stays(self, seed: int, clients: Any, population: int, time: float) -> Any:
            return begins[clients], np.full(len(clients), math.inf)

    world = World(policy, Coming((1.0, 4.0, 1.0, 1.0, 1.0)))
    world.play()
    # A free place is taken at 5 by client 2, who is ready at 6.
    expected = ([0, 1, 2], 6.0) if policy.k == 3 else ([0, 1], 4.0)
    assert (world.records[0].participants, world.state.computing) == expected
    world.play(4)
    assert all(len(record.participants) == policy.k for record in world.records)


def test_where_fewer_than_a_buffer_ever_come_a_round_takes_what_there_is() -> None:
    clock = Leaving((1.0,) * 5, periods=(1e9,) * 5, stay=(1e9, 1e9, 0.5, 0.5, 0.5))
    world = World(FedBuff(sample=4, k=4), clock)
    world.play(2)
    assert [record.participants for record in world.records] == [[0, 1], [0, 1]]


def test_over_selection_takes_the_first_of_more() -> None:
    """Four are asked for three, and the fourth is late; communication is beside the rounds."""
    policy = lowest_first(OverSelection)(sample=3, over=1.3)
    world = World(policy, Given((3.0, 1.0, 2.0, 5.0, 4.0), communication=2.0))
    x = 1.0
    for round in range(3):
        world.play()
        record = world.records[-1]
        assert (record.asked, record.participants, record.late) == (4, [1, 2, 0], [3])
        assert (record.duration, record.arrivals, record.late_arrivals) == (3.0, [1, 2, 3], [5.0])
        assert record.time(2.0) == (round + 1) * 5.0
        x = 0.9 * x + 2.0  # the mean of client + 1
        assert close(world.x, x)


def test_a_deadline_takes_all_in_time_or_the_first() -> None:
    times = (3.0, 1.0, 2.0, 5.0, 4.0)
    for seconds, counted, duration in [
        (2.5, [1, 2], 2.5),
        (3.0, [1, 2, 0], 3.0),  # at the deadline is in time
        (0.5, [1], 1.0),  # nobody: the first, however late
        (9.0, [1, 2, 0, 4, 3], 5.0),  # everyone is there before it
    ]:
        world = World(Deadline(seconds=seconds), Given(times))
        world.play()
        record = world.records[0]
        assert (record.participants, record.duration) == (counted, duration)


def choose(policy: Any, memory: Any, ask: int, idle: Any, seed: int = 0) -> tuple[int, ...]:
    rng = np.random.default_rng(seed)
    return tuple(policy.choose(memory, Call(ask=ask, wait=ask), idle, rng))


def heard(round: int, losses: dict[int, float], times: dict[int, float]) -> Outcome:
    sent = {"w": torch.zeros(1)}
    order = sorted(losses, key=lambda client: times[client])
    answers = [Answer(c, times[c], sent, losses[c], 10) for c in order]
    call = Call(ask=len(losses), wait=len(losses))
    return Outcome(round, call, sorted(losses), answers, times[order[-1]], 0.0, sent)


def test_power_of_choice_by_hand() -> None:
    """All five are candidates: the unheard first, then those with the highest last loss."""
    policy, losses = PowerOfChoice(sample=2, candidates=2.5), [5.0, 1.0, 3.0, 4.0, 2.0]
    memory = policy.begin(5)
    for round, expected in enumerate([(0, 1), (2, 3), (0, 4), (0, 3), (0, 2)]):
        asked = choose(policy, memory, 2, range(5))
        assert asked == expected
        now = {c: losses[c] if round < 3 else 0.5 * losses[c] for c in asked}
        memory = policy.learn(memory, heard(round, now, dict.fromkeys(asked, 1.0)))
        # In the last round 0 and 3 have come down to 2.5 and 2, and client 2 is still at 3.


def test_fedcs_by_hand() -> None:
    """All five are candidates; who was never heard is expected at once, and tried."""
    world = World(FedCS(sample=2, candidates=2.5, seconds=2.5), Given((1.0, 2.0, 3.0, 4.0, 5.0)))
    world.play(5)
    assert [record.participants for record in world.records] == [
        [0, 1],
        [2, 3],
        [0, 4],
        [0, 1],  # the only ones within 2.5 seconds
        [0, 1],
    ]
    assert [record.duration for record in world.records] == [2.0, 4.0, 5.0, 2.0, 2.0]


def test_tifl_by_hand() -> None:
    """Profiling asks each once; tiers of 5 clients are {0, 1}, {2, 3}, {4}; credits run out."""
    world = World(TiFL(sample=2, tiers=3, credits=2), Given((1.0, 2.0, 3.0, 4.0, 5.0)))
    world.play(9)
    profiled = [client for record in world.records[:3] for client in record.participants]
    assert sorted(profiled) == [0, 1, 2, 3, 4]
    after = [tuple(record.participants) for record in world.records[3:]]
    assert sorted(after) == [(0, 1), (0, 1), (2, 3), (2, 3), (4,), (4,)]
    assert world.state.memory["turns"] == [2, 2, 2]


def oort_memory(policy: Oort, losses: dict[int, float], times: dict[int, float]) -> Any:
    memory = policy.learn(policy.begin(99), heard(0, losses, times))
    return {**memory, "pace": 50.0}


def test_oort_exploits_the_useful_unless_they_are_slow() -> None:
    """Two of those above 95 % of the second utility. Client 0 has the highest; where it takes four
    times the preferred duration it counts a sixteenth, and is drawn no more."""
    policy = Oort(sample=2, exploration=0.0, least=0.0)
    losses = {0: 10.0, 1: 8.0, 2: 2.0, 3: 2.0, 4: 1.0}
    same = oort_memory(policy, losses, dict.fromkeys(range(5), 1.0))
    slow = oort_memory(policy, losses, {0: 4.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0})
    assert {choose(policy, same, 2, range(5), seed) for seed in range(20)} == {(0, 1)}
    drawn = {choose(policy, slow, 2, range(5), seed) for seed in range(40)}
    assert drawn == {(1, 2), (1, 3), (2, 3)}  # 4 is below 95 % of 2 and 3


def test_oort_explores_only_the_unheard_with_its_share() -> None:
    policy = Oort(sample=2, exploration=0.5, decay=1.0, least=0.5)
    memory = oort_memory(policy, {0: 9.0, 1: 1.0, 2: 1.0}, dict.fromkeys(range(3), 1.0))
    asked = {choose(policy, memory, 2, range(5), seed) for seed in range(20)}
    assert asked == {(0, 3), (0, 4)}
    shrunk = Oort(sample=10, exploration=0.9, decay=0.98, least=0.2)
    shares = [max(0.2, 0.9 * 0.98**round) for round in range(100)]
    assert shares[0] == 0.9
    assert shares[-1] == 0.2  # 0.9·0.98^99 is 0.12
    seen = oort_memory(shrunk, {c: 1.0 + c for c in range(20)}, dict.fromkeys(range(20), 1.0))
    for round in (1, 30, 90):
        now = {**seen, "round": round}
        new = [c for c in choose(shrunk, now, 10, range(60)) if c >= 20]
        assert len(new) == math.ceil(shares[round] * 10)


def test_divfls_greedy_choice_is_as_good_as_submodularity_promises() -> None:
    """At least 1 − 1/e of what the best of all choices gains."""
    rng = np.random.default_rng(3)
    for _ in range(10):
        points = rng.normal(size=(8, 3))
        apart = np.linalg.norm(points[:, None] - points[None], axis=2)

        def left(some: Any, apart: Any = apart) -> float:
            return float(apart[list(some)].min(0).sum())

        best = min(left(some) for some in itertools.combinations(range(8), 3))
        nothing = 8 * (apart.max() + 1)
        assert nothing - left(greedy(points, 3)) >= (1 - 1 / math.e) * (nothing - best)
        assert left(greedy(points, 1)) == pytest.approx(min(left([i]) for i in range(8)))

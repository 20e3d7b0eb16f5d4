from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import srpfl
from srpfl.core.randomness import stream
from srpfl.errors import ConfigError
from srpfl.loop.rounds import Arrival, first
from srpfl.participation import Answer, Call, Everyone, Outcome


def sample(idle: Sequence[int], call: Call, seed: int) -> tuple[int, ...]:
    rng = stream(seed, "sample", call.draw)
    return tuple(Everyone().choose({}, call, idle, rng))


def waits(policy, rounds, population) -> list[int]:
    memory = policy.begin(population)
    return [policy.call(memory, round, population).wait for round in rounds]


def test_doubling_is_the_papers_schedule() -> None:
    at = range(0, 60, 10)
    assert waits(srpfl.Doubling(start=10, every=10), at, 100) == [10, 20, 40, 80, 100, 100]
    assert waits(srpfl.Doubling(start=10, every=10, sample=0.2), at, 100) == [10] + [20] * 5


def test_an_explicit_schedule_is_followed_and_its_last_stage_stays() -> None:
    policy = srpfl.Doubling(schedule=[(3, 2), (7, 1), (9, 0), (10, 5)])
    assert waits(policy, range(6), 10) == [3, 3, 7, 10, 10, 10]
    assert waits(policy, [10**9], 10) == [10]


@given(st.integers(1, 500), st.integers(1, 20), st.integers(0, 10**6), st.floats(0.01, 1.0))
def test_defaults_fit_any_population(population, every, round, fraction) -> None:
    for policy in (
        srpfl.Doubling(every=every, sample=fraction),
        srpfl.FirstN(sample=fraction),
        srpfl.Everyone(sample=fraction),
        srpfl.Deadline(sample=fraction),
    ):
        call = policy.call(policy.begin(population), round, population)
        assert 1 <= call.wait <= call.ask <= population


@given(st.integers(1, 200), st.integers(1, 10), st.integers(0, 300))
def test_doubling_never_goes_down_and_at_most_doubles(population, every, round) -> None:
    policy = srpfl.Doubling(every=every)
    now, then = waits(policy, [round, round + 1], population)
    assert now <= then <= 2 * now


def test_a_start_larger_than_the_sample_is_refused() -> None:
    with pytest.raises(ConfigError, match="waits for 30 clients but only 20 are asked"):
        srpfl.Doubling(start=30, sample=0.2).begin(100)
    with pytest.raises(ConfigError, match="waits for 11 clients but only 10"):
        srpfl.Doubling(schedule=[(11, 1)]).begin(10)
    with pytest.raises(ConfigError, match="cannot sample 30 clients of 20"):
        srpfl.Everyone(sample=30).begin(20)


@given(st.integers(1, 60), st.integers(0, 1000), st.integers(0, 5), st.data())
def test_a_sample_has_no_one_twice_and_is_the_same_for_the_same_draw(
    idle, draw, seed, data
) -> None:
    asked = data.draw(st.integers(1, idle))
    call = Call(ask=asked, wait=1, draw=draw)
    chosen = sample(range(idle), call, seed)
    assert len(set(chosen)) == len(chosen) == asked
    assert list(chosen) == sorted(chosen)
    assert chosen == sample(range(idle), call, seed)


def test_a_stage_can_keep_its_sample() -> None:
    policy = srpfl.Doubling(start=1, every=3, sample=5, resample="stage")
    chosen = [sample(range(50), policy.call({}, r, 50), seed=0) for r in range(6)]
    assert chosen[0] == chosen[1] == chosen[2]
    assert chosen[3] == chosen[4] == chosen[5] != chosen[0]


@pytest.mark.parametrize("policy", [srpfl.Everyone, srpfl.FirstN, srpfl.Deadline])
def test_without_stages_a_sample_by_stage_stays_for_ten_rounds(policy) -> None:
    calls = [policy(sample=5, resample="stage").call({}, r, 50) for r in (0, 9, 10)]
    assert [call.draw for call in calls] == [0, 0, 1]


times = st.lists(st.floats(0, 100), min_size=1, max_size=30)


@given(times, st.data())
def test_the_first_n_count_and_the_round_ends_with_the_nth(values, data) -> None:
    arrivals = [Arrival(client, time) for client, time in enumerate(sorted(values))]
    n = data.draw(st.integers(1, len(arrivals)))
    counted, duration = first(iter(arrivals), Call(ask=len(arrivals), wait=n))
    assert counted == arrivals[:n]
    assert duration == sorted(values)[n - 1]


@given(times, st.floats(0.1, 100))
def test_a_deadline_takes_whoever_is_in_time_but_never_no_one(values, deadline) -> None:
    arrivals = [Arrival(client, time) for client, time in enumerate(sorted(values))]
    call = Call(ask=len(values), wait=len(values), deadline=deadline)
    counted, duration = first(iter(arrivals), call)
    in_time = [arrival for arrival in arrivals if arrival.time <= deadline]
    assert counted == (in_time or arrivals[:1])
    if len(in_time) == len(arrivals):
        assert duration == arrivals[-1].time  # nobody is left to wait for
    else:
        assert duration == (deadline if in_time else arrivals[0].time)


@given(times, st.floats(0, 1), st.floats(0, 100), st.data())
def test_with_grace_those_count_who_come_soon_after_the_nth(values, grace, cost, data) -> None:
    arrivals = [Arrival(client, time) for client, time in enumerate(sorted(values))]
    n = data.draw(st.integers(1, len(arrivals)))
    call = Call(ask=len(arrivals), wait=n, grace=grace)
    counted, duration = first(iter(arrivals), call, cost)
    end = arrivals[n - 1].time + grace * (arrivals[n - 1].time + cost)
    after = [arrival for arrival in arrivals[n:] if grace and arrival.time <= end]
    assert counted == arrivals[:n] + after
    everyone = len(counted) == len(arrivals)
    assert duration == (counted[-1].time if everyone or not grace else end)


def outcome(gradients: list[float], samples: int, asked: int) -> Outcome:
    answers = [
        Answer(client, 1.0, {}, 0.0, samples, {"gradient": {"w": torch.tensor([value])}})
        for client, value in enumerate(gradients)
    ]
    call = Call(ask=asked, wait=len(gradients))
    return Outcome(0, call, range(asked), answers, 1.0, 0.0, {})


def test_flanps_rule_ends_a_stage_exactly_where_its_inequality_says() -> None:
    """‖mean gradient‖² ≤ 2·μ·c/(n·s): with μ = 0.5, c = 1, n·s = 2·8 the bound is 1/16."""
    rule = srpfl.FlanpRule(start=2, convexity=0.5, noise=1.0)
    memory = rule.begin(5)
    above, at = outcome([0.25, 0.2500002], 8, asked=5), outcome([0.0, 0.5], 8, asked=5)
    assert rule.learn(memory, above) == memory
    assert rule.learn(memory, at) == {"wait": 4, "stage": 1}
    last = rule.learn({"wait": 4, "stage": 1}, outcome([0.0] * 4, 8, asked=5))
    assert last == {"wait": 5, "stage": 2}
    assert rule.learn(last, outcome([0.0] * 5, 8, asked=5)) == last


def test_flanps_rule_refuses_what_it_cannot_do() -> None:
    with pytest.raises(ConfigError, match="only 5 of 10"):
        srpfl.FlanpRule(sample=0.5).begin(10)


def test_flanps_rule_refuses_speeds_that_change() -> None:
    import tiny

    with pytest.raises(ConfigError, match="this clock changes their speeds"):
        tiny.simulate(
            algorithm=srpfl.FedAvg(),
            participation=srpfl.FlanpRule(),
            clock=srpfl.DynamicExponential(),
        )
    run = tiny.simulate(
        algorithm=srpfl.FedAvg(), participation=srpfl.FlanpRule(start=1, convexity=100.0)
    )
    assert [len(record.participants) for record in run.rounds] == [1, 2, 4, 6]

"""Policies that choose whom to ask, on small cases computed by hand."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

import srpfl
from srpfl.core.randomness import stream
from srpfl.errors import ConfigError
from srpfl.participation import (
    Answer,
    Call,
    DivFL,
    Fair,
    FedCS,
    Oort,
    Outcome,
    OverSelection,
    PowerOfChoice,
    TiFL,
    TypicalDeadline,
)
from srpfl.participation.divfl import sketched

SELECTING = [Oort, PowerOfChoice, Fair, FedCS, TiFL, DivFL]


def fact(loss: float, time: float, samples: int = 10, round: int = 0) -> dict[str, Any]:
    return {"loss": loss, "time": time, "samples": samples, "round": round, "often": 1}


def choose(policy: Any, memory: Any, ask: int, idle: Any, seed: int = 0) -> tuple[int, ...]:
    return tuple(policy.choose(memory, Call(ask=ask, wait=ask), idle, stream(seed, "sample", 0)))


def outcome(round: int, times: dict[int, float], wait: int, losses: float = 1.0) -> Outcome:
    order = sorted(times, key=lambda client: times[client])
    sent = {"w": torch.zeros(3)}
    answers = [
        Answer(client, times[client], {"w": torch.full((3,), float(client))}, losses, 10)
        for client in order[:wait]
    ]
    call = Call(ask=len(times), wait=wait)
    return Outcome(round, call, sorted(times), answers, times[order[wait - 1]], 0.0, sent)


def played(policy: Any, rounds: int = 6) -> srpfl.Run:
    data = srpfl.data.load("digits", clients=12, seed=1)
    return srpfl.simulate(
        data=data,
        model=srpfl.models.MLP(64, (8,), classes=data.classes),
        algorithm=srpfl.FedAvg(),
        participation=policy,
        rounds=rounds,
        evaluate_every=0,
        engine="loop",
    )


@pytest.mark.parametrize("policy", SELECTING)
def test_a_run_asks_as_many_as_it_should_and_comes_out_the_same_twice(policy: Any) -> None:
    first, again = played(policy(sample=4)), played(policy(sample=4))
    assert [record.participants for record in first.rounds] == [
        record.participants for record in again.rounds
    ]
    most = max(record.asked for record in first.rounds)
    assert most == 4
    assert len({tuple(sorted(record.participants)) for record in first.rounds}) > 1


@pytest.mark.parametrize("policy", SELECTING)
def test_who_asks_everyone_has_nothing_to_choose(policy: Any) -> None:
    with pytest.raises(ConfigError, match="sample fewer"):
        policy(sample=1.0).begin(10)


def test_over_selection_of_one_is_everyone() -> None:
    for round in range(3):
        call = OverSelection(sample=0.3, over=1.0).call({}, round, 40)
        assert call == srpfl.Everyone(sample=0.3).call({}, round, 40)
    assert OverSelection(sample=0.9, over=1.3).call({}, 0, 10).ask == 10


def test_a_late_client_took_at_least_as_long_as_the_round() -> None:
    policy = PowerOfChoice(sample=3)
    memory = policy.learn(policy.begin(10), outcome(0, {1: 0.5, 2: 9.0, 3: 1.5}, wait=2))
    assert {client: each["time"] for client, each in memory["seen"].items()} == {
        "1": 0.5,
        "3": 1.5,
        "2": 1.5,
    }
    assert "loss" not in memory["seen"]["2"]


def test_power_of_choice_takes_the_highest_losses_and_the_unheard_first() -> None:
    policy = PowerOfChoice(sample=2, candidates=5.0)
    seen = {str(client): fact(loss=client, time=1.0) for client in range(9)}
    assert choose(policy, {"seen": seen}, 2, range(10)) == (8, 9)  # 9 was never heard
    assert choose(policy, {"seen": seen}, 2, range(9)) == (7, 8)


def test_oort_without_exploitation_is_uniform_sampling() -> None:
    policy = Oort(sample=4, exploration=1.0, decay=1.0)
    for heard, seed in itertools.product((0, 10, 20), range(5)):
        seen = {str(client): fact(loss=client, time=1.0) for client in range(heard)}
        memory = {**policy.begin(20), "seen": seen, "round": 9}
        uniform = choose(srpfl.Everyone(), {}, 4, range(20), seed)
        assert choose(policy, memory, 4, range(20), seed) == uniform


def test_oorts_utility_is_the_papers() -> None:
    policy = Oort(sample=2, pace=50.0)
    seen = {"0": fact(2.0, 1.0, 10, 0), "1": fact(1.0, 4.0, 10, 1), "2": fact(4.0, 2.0, 5, 3)}
    memory = {**policy.begin(9), "seen": seen, "round": 4, "pace": 50.0}
    found = policy.utilities(memory, [0, 1, 2])
    most = np.percentile([20.0, 10.0, 20.0], 95)
    by_hand = [
        min(20 / most, 1) + math.sqrt(0.1 * math.log(5) / 1),
        (10 / most + math.sqrt(0.1 * math.log(5) / 2)) * (2.0 / 4.0) ** 2,  # slower than T = 2
        min(20 / most, 1) + math.sqrt(0.1 * math.log(5) / 4),
    ]
    np.testing.assert_allclose(found, by_hand, rtol=1e-12)


def test_oorts_pacer_allows_more_time_when_less_is_won() -> None:
    policy = Oort(sample=2, window=2, pace=30.0, step=5.0)
    memory = policy.begin(9)
    for round, loss in enumerate([4.0, 4.0, 1.0, 1.0]):
        memory = policy.learn(memory, outcome(round, {0: 1.0, 1: 2.0}, 2, loss))
    assert memory["pace"] == 35.0
    memory = policy.learn(memory, outcome(4, {0: 1.0, 1: 2.0}, 2, 9.0))
    memory = policy.learn(memory, outcome(5, {0: 1.0, 1: 2.0}, 2, 9.0))
    assert memory["pace"] == 35.0


def test_fedcs_asks_those_expected_in_time() -> None:
    policy = FedCS(sample=3, seconds=2.0, candidates=4.0)
    seen = {str(client): fact(1.0, time=client) for client in range(1, 10)}
    assert choose(policy, {"seen": seen}, 3, range(1, 10)) == (1, 2)
    slow = {str(client): fact(1.0, time=5.0 + client) for client in range(9)}
    assert choose(policy, {"seen": slow}, 3, range(9)) == (0,)  # never nobody
    assert played(FedCS(sample=4, seconds=0.5)).rounds[-1].duration < 2


def test_tifl_asks_within_one_tier_and_spends_its_credits() -> None:
    policy = TiFL(sample=2, tiers=3, credits=1)
    seen = {str(client): fact(1.0, time=client) for client in range(9)}
    memory = {**policy.begin(20), "seen": seen}
    tiers = [{0, 1, 2}, {3, 4, 5}, {6, 7, 8}]
    assert [set(tier) for tier in policy.sorted(seen)] == tiers
    drawn = []
    for round in range(3):
        asked = choose(policy, memory, 2, range(9), seed=round)
        drawn.append(next(i for i, tier in enumerate(tiers) if set(asked) <= tier))
        memory = policy.learn(memory, outcome(round, {client: client + 0.0 for client in asked}, 2))
    assert sorted(drawn) == [0, 1, 2]
    assert memory["turns"] == [1, 1, 1]


def test_a_tier_with_a_higher_loss_comes_more_often() -> None:
    policy = TiFL(sample=2, tiers=2)
    seen = {str(c): fact(9.0 if c >= 4 else 1.0, time=c) for c in range(8)}
    memory = {**policy.begin(20), "seen": seen}
    asked = [choose(policy, memory, 2, range(8), seed)[0] >= 4 for seed in range(200)]
    # 0.9 of 200 with a deviation of 4.2: five deviations to each side
    assert 159 <= sum(asked) <= 200


def test_fairness_follows_loss_and_age() -> None:
    policy = Fair(sample=1, loss=1.0, age=1.0)
    seen = {
        "0": fact(1.0, 1.0, round=8),
        "1": fact(3.0, 1.0, round=8),
        "2": fact(1.0, 1.0, round=5),
    }
    memory = {"seen": seen, "round": 9}
    counts = np.bincount([choose(policy, memory, 1, range(3), seed)[0] for seed in range(900)])
    # weights 1, 3 and 4 of 8; five deviations of a binomial are 75 at most
    np.testing.assert_allclose(counts, [900 / 8, 900 * 3 / 8, 900 / 2], atol=75)


def test_divfl_takes_one_of_each_kind() -> None:
    policy = DivFL(sample=2)
    sketches = {str(c): [0.0 if c < 5 else 10.0, 0.01 * c] for c in range(10)}
    asked = choose(policy, {"seen": {}, "sketches": sketches}, 2, range(10))
    assert {client < 5 for client in asked} == {True, False}


def test_a_sketch_keeps_distances_on_average() -> None:
    rng = np.random.default_rng(0)
    zero = {"w": torch.zeros(40, 50)}
    ratios = []
    for _ in range(30):
        step = rng.normal(size=(40, 50))
        found = sketched({"w": torch.tensor(step)}, zero, 64)
        ratios.append((found**2).sum() / (step**2).sum())
    # the square's relative deviation is about sqrt(2 / 64) = 0.18, of the mean of 30 it is 0.03
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.15)


def test_a_typical_deadline_is_the_median_or_that_of_mean_speed() -> None:
    times = {0: 1.0, 1: 2.0, 2: 6.0}
    for policy, expected in (
        (TypicalDeadline(times=2.0), 4.0),
        (TypicalDeadline(typical="speed"), 3 / (1 + 1 / 2 + 1 / 6)),
    ):
        memory = policy.begin(3)
        assert policy.call(memory, 0, 3).deadline is None
        memory = policy.learn(memory, outcome(0, times, wait=3))
        assert policy.call(memory, 1, 3).deadline == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: OverSelection(over=0.5), "1 or more, not 0.5"),
        (lambda: Oort(exploration=2.0), "a share from 0 to 1"),
        (lambda: PowerOfChoice(candidates=0.1), "1 or more"),
        (lambda: FedCS(seconds=float("nan")), "number"),
        (lambda: TiFL(tiers=0), "at least 1"),
        (lambda: DivFL(sketch=0), "at least one"),
        (lambda: TypicalDeadline(times=0), "positive"),
        (lambda: TypicalDeadline(typical="mean"), "'median' or 'speed'"),
        (lambda: Fair(loss=-1.0), "zero or more"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(make: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        make()

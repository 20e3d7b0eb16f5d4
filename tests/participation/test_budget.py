"""Clients whose energy or data is used up."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

import srpfl
import tiny
from participation.scripted import Given, Leaving, World
from srpfl.errors import ConfigError
from srpfl.loop.transport import NoAnswerError
from srpfl.options.choices import build_participation
from srpfl.options.config import Config
from srpfl.participation import Budgeted, Compass, FedBuff

TIMES = (1.0, 2.0, 3.0, 4.5, 10.0)


def asks(world: World) -> Counter[int]:
    flights = [flight.client for flight in world.state.flights]
    ended = [c for r in world.records for c in (*r.participants, *r.late, *r.lost)]
    return Counter(ended + flights)


def test_late_work_costs_as_much_and_who_has_none_left_is_not_asked() -> None:
    """Two of all five count in each round; the third round finds nobody any more."""
    world = World(Budgeted(policy=srpfl.FirstN(n=2), updates=2), Given(TIMES))
    world.play(2)
    assert [record.asked for record in world.records] == [5, 5]
    assert world.state.memory["budget used"] == dict.fromkeys("01234", 2)
    with pytest.raises(NoAnswerError, match="budgets are used up"):
        world.play()


def test_others_are_asked_in_the_place_of_those_who_have_none_left() -> None:
    """Three of five at a time, for three updates each: fifteen in all."""
    world = World(Budgeted(policy=srpfl.Everyone(sample=3), updates=3), Given(TIMES))
    with pytest.raises(NoAnswerError, match="the budgets are used up"):
        world.play(99)
    assert asks(world) == dict.fromkeys(range(5), 3)


@pytest.mark.parametrize("policy", [FedBuff(sample=3, k=2), Compass(sample=3)])
@pytest.mark.parametrize("comes", [False, True])
def test_late_answers_that_are_kept_end_with_the_budget(policy: Any, comes: bool) -> None:
    clock: Any = Given(TIMES)
    if comes:
        clock = Leaving(TIMES, periods=(40.0,) * 5, stay=(20.0,) * 5)
    world = World(Budgeted(policy=policy, updates=4), clock)
    with pytest.raises(NoAnswerError, match="the budgets are used up"):
        world.play(99)
    assert asks(world) == dict.fromkeys(range(5), 4)
    assert json.loads(json.dumps(world.state.memory)) == world.state.memory


def test_without_an_end_in_sight_it_is_the_policy_itself() -> None:
    for policy in (srpfl.Doubling(start=1, every=1), srpfl.Auto(start=2), FedBuff(k=2)):
        plain = tiny.simulate(participation=policy, rounds=4)
        around = tiny.simulate(participation=Budgeted(policy=policy, updates=99), rounds=4)
        assert [r.participants for r in plain.rounds] == [r.participants for r in around.rounds]
        assert plain.state is not None
        assert around.state is not None
        assert tiny.same(plain.state.shared, around.state.shared)
        used = around.state.memory.pop("budget used")
        assert sum(used.values()) == sum(record.asked for record in around.rounds)
        assert around.state.memory == plain.state.memory


def test_the_command_has_it() -> None:
    made = build_participation(Config.of({"energy": 7, "participation": "fedbuff"}), "everyone")
    assert made == Budgeted(policy=FedBuff(), updates=7)
    with pytest.raises(ConfigError, match="at least one"):
        build_participation(Config.of({"energy": 0}), "everyone")

"""What a round does and, above all, what it does not do."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import srpfl
import tiny
from srpfl.algorithms import FedRep
from srpfl.clock import Work
from srpfl.core.split import partition, state_of
from srpfl.engine.loop import LoopEngine
from srpfl.errors import DivergedError
from srpfl.loop.population import VirtualTransport
from srpfl.loop.rounds import check_finite, initial_state, play
from srpfl.participation.base import Answer
from srpfl.runs.state import ClientParts


def world(data=None, participation=None, clock=None, seed=0):
    """A state and a function that plays a round from it."""
    data = data or tiny.data()
    net, algorithm = tiny.model(), FedRep(head_epochs=2, body_epochs=1)
    participation = participation or srpfl.FirstN(n=2)
    shared, personal = partition(state_of(net), algorithm.is_personal(net))
    parts = ClientParts(personal)
    transport = VirtualTransport(
        data=data,
        engine=LoopEngine(net, data),
        clock=clock or srpfl.FixedExponential(),
        plans=algorithm.plans(net),
        parts=parts,
        seed=seed,
    )

    def next_round(state):
        return play(
            state,
            algorithm=algorithm,
            participation=participation,
            transport=transport,
            seed=seed,
        )

    return initial_state(shared, participation, data.clients), next_round, parts


def test_a_rounds_time_is_the_nth_order_statistic_and_c_comes_on_top() -> None:
    state, next_round, _ = world()
    state, record = next_round(state)
    ones = np.ones(6, dtype=np.int64)
    times = srpfl.FixedExponential().times(0, 0, np.arange(6), 6, Work(ones, ones, 0, 0))
    assert record.duration == np.sort(times)[1]
    assert record.participants == [int(client) for client in np.argsort(times)[:2]]
    assert record.arrivals == list(np.sort(times)[:2])
    assert record.late == [int(client) for client in np.argsort(times)[2:]]
    state, second = next_round(state)
    assert second.time(10) == pytest.approx(2 * record.duration + 2 * 10)


def test_a_late_answer_changes_nothing_at_all() -> None:
    """The late ones hold other data, yet everything that the round leaves behind is the same."""
    data = tiny.data()
    late = [0, 1, 2, 3, 4, 5]
    state, next_round, parts = world(data)
    after, record = next_round(state)
    late = [client for client in late if client not in record.participants]
    rows = np.concatenate([data.train_parts[client] for client in late])
    other = data.train_pool.x.copy()
    other[rows] += 100
    changed = dataclasses.replace(data, train_pool=data.train_pool._replace(x=other))
    state, next_round, other_parts = world(changed)
    same, same_record = next_round(state)
    assert same_record == record
    assert tiny.same(same.shared, after.shared)
    for client in range(6):
        assert tiny.same(parts.of(client), other_parts.of(client))


def test_whoever_does_not_take_part_keeps_its_personal_part() -> None:
    state, next_round, parts = world(clock=srpfl.IIDExponential())
    for _ in range(4):
        before = {client: parts.of(client) for client in range(6)}
        state, record = next_round(state)
        for client in range(6):
            kept = tiny.same(parts.of(client), before[client])
            assert kept == (client not in record.participants)


def test_the_average_is_that_of_the_participants() -> None:
    state, next_round, _ = world()
    after, record = next_round(state)
    _, _, locals_ = tiny.train_once(
        FedRep(head_epochs=2, body_epochs=1), clients=tuple(sorted(record.participants))
    )
    for name, value in after.shared.items():
        mean = torch.stack([local.shared[name] for local in locals_]).double().mean(0).float()
        torch.testing.assert_close(value, mean, rtol=1e-6, atol=1e-8)


def test_a_loss_that_is_not_a_number_names_round_and_client() -> None:
    data = tiny.data()
    broken = data.train_pool.x.copy()
    broken[data.train_parts[4]] = np.nan
    data = dataclasses.replace(data, train_pool=data.train_pool._replace(x=broken))
    state, next_round, _ = world(data, participation=srpfl.Everyone())
    with pytest.raises(DivergedError, match="client 4 has loss nan in round 1"):
        next_round(state)


def test_partial_participation_waits_for_the_fastest_of_those_asked() -> None:
    state, next_round, _ = world(participation=srpfl.FirstN(n=2, sample=3))
    ones = np.ones(6, dtype=np.int64)
    times = srpfl.FixedExponential().times(0, 0, np.arange(6), 6, Work(ones, ones, 0, 0))
    seen = set()
    for _ in range(8):
        state, record = next_round(state)
        asked = record.participants + record.late
        assert len(asked) == 3
        assert record.participants == sorted(asked, key=lambda client: times[client])[:2]
        seen.add(tuple(sorted(asked)))
    assert len(seen) > 1


def test_a_loss_from_which_no_training_comes_back_ends_the_run() -> None:
    shared = {"w": torch.zeros(2)}
    check_finite([Answer(3, 1.0, shared, 1e29, 5)], shared, 0)
    for loss in (2e30, -2e30, float("nan")):
        with pytest.raises(DivergedError, match=r"client 3 has loss .* in round 1"):
            check_finite([Answer(3, 1.0, shared, loss, 5)], shared, 0)

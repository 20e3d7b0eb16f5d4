"""CA2FL's cached updates, against the paper's server that holds one for every client."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import srpfl
import tiny
from algorithms.quadratic import CLIENTS, SAME, away, both_engines, local, played, weights
from participation.scripted import Given

SPEEDS = Given((1.0, 2.5, 7.0))


@both_engines
@pytest.mark.parametrize("k", [1, 2])
def test_late_answers_are_corrected_by_the_last_update_of_everyone(k: int, engine: str) -> None:
    policy = srpfl.FedBuff(k=k, staleness="constant")
    run = played(srpfl.CA2FL(**SAME), 12, participation=policy, clock=SPEEDS, engine=engine)
    x, cached = [np.zeros(2)], np.zeros((CLIENTS, 2))
    for record in run.rounds:
        deltas = {}
        for client, age in zip(record.participants, record.ages, strict=True):
            sent = x[len(x) - 1 - age]
            deltas[client] = local(client, sent) - sent
        h = cached.mean(0)
        x.append(x[-1] + h + np.mean([deltas[i] - cached[i] for i in deltas], 0))
        for client, delta in deltas.items():
            cached[client] = delta
    assert max(age for record in run.rounds for age in record.ages) > 1
    assert away(weights(run.state), x[-1]) < 1e-12
    assert run.state is not None
    assert np.allclose(run.state.server["h"]["line.weight"][0], cached.mean(0), rtol=0, atol=1e-12)


def test_where_everyone_answers_it_is_fedavg() -> None:
    one, other = (played(kind(**SAME)) for kind in (srpfl.CA2FL, srpfl.FedAvg))
    assert away(weights(one.state), weights(other.state)) < 1e-12


def test_the_slow_count_as_much_as_the_fast() -> None:
    """FedBuff ends nearer to the optimum of the client that answers most often; the cache takes
    that pull away."""
    ends = {}
    for kind in (srpfl.CA2FL, srpfl.FedAvg):
        policy = srpfl.FedBuff(k=1, staleness="constant")
        run = played(kind(**SAME), 300, participation=policy, clock=SPEEDS)
        ends[kind] = weights(run.state)
    even = weights(played(srpfl.FedAvg(**SAME), 200).state)  # everyone counts alike
    assert away(ends[srpfl.CA2FL], even) < 0.5 * away(ends[srpfl.FedAvg], even)


def test_heads_stay_at_home_and_what_is_dropped_is_not_cached() -> None:
    clock: Any = Given((1.0, 1.0, 1.0, 1.0, 1.0, 40.0))
    run = tiny.simulate(
        algorithm=srpfl.CA2FLRep(head_epochs=1),
        participation=srpfl.FedBuff(k=2, staleness="constant", max_age=3),
        clock=clock,
        rounds=150,
    )
    assert run.state is not None
    assert run.parts is not None
    assert any(5 in record.late for record in run.rounds)
    assert 5 not in run.parts.trained
    h = run.state.server["h"]
    last = [run.parts.slots_of(client)["h_i"] for client in range(5)]
    for name, value in h.items():
        mean = torch.stack([own[name] for own in last]).sum(0) / 6
        assert torch.allclose(value, mean, atol=1e-5), name

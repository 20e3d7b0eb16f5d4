"""Methods whose server remembers more than a model, where answers come late or in few numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import srpfl
import tiny
from algorithms.quadratic import SAME, away, loss, own, played, weights
from algorithms.quadratic import Start as Line
from participation.scripted import Given
from srpfl.data.base import Pooled
from srpfl.participation import FedAsync, FedBuff

CLOCK = Given((1.0, 1.5, 4.2))


class Kept(srpfl.Watcher):
    """The state after each round."""

    def __init__(self) -> None:
        self.states: list[Any] = []

    def after(self, run: srpfl.Run) -> bool:
        self.states.append(run.state)
        return False


def test_a_layer_that_was_trained_long_ago_is_the_one_that_moves() -> None:
    kept = Kept()
    run = tiny.simulate(
        algorithm=srpfl.PartialTraining(layers=1),
        participation=FedBuff(k=1),
        clock=Given((1.0, 1.5, 2.2, 3.1, 4.3, 5.7)),
        rounds=8,
        evaluate_every=0,
        watchers=[kept],
    )
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in kept.states[0].shared))
    assert {age % len(layers) for record in run.rounds for age in record.ages} != {0}
    for before, after, record in zip(kept.states, kept.states[1:], run.rounds[1:], strict=False):
        [client], [age] = record.participants, record.ages
        trained = layers[(client + record.round - 1 - age) % len(layers)]
        changed = {
            name.rpartition(".")[0]
            for name, value in after.shared.items()
            if not torch.equal(value, before.shared[name])
        }
        assert changed == {trained}


@pytest.mark.parametrize("policy", [FedBuff(k=1), FedAsync()])
def test_the_mean_of_own_models_goes_part_of_the_way_to_a_late_one(policy: Any) -> None:
    kept = Kept()
    algorithm = srpfl.L2GD(strength=0.5, **SAME)
    run = played(algorithm, 12, participation=policy, clock=CLOCK, watchers=[kept])
    x, last = weights(kept.states[-2]), run.rounds[-1]
    [client], [age] = last.participants, last.ages
    assert age > 0
    expected = x + policy.credit(age).weight * (own(run, "x")[client] - x)
    assert away(weights(run.state), expected) < 1e-12


@pytest.mark.parametrize("algorithm", [srpfl.MOCHA(tasks=3, **SAME), srpfl.FedAMP(**SAME)])
def test_a_server_that_keeps_clients_models_keeps_late_ones_as_they_are(algorithm: Any) -> None:
    run = played(algorithm, 12, participation=FedBuff(k=1), clock=CLOCK)
    assert run.state is not None
    assert max(age for record in run.rounds for age in record.ages) > 0
    server = run.state.server
    rows = {"MOCHA": "tasks", "FedAMP": "peers"}[type(algorithm).__name__]
    who = server["seen"]["client"].tolist() if rows == "peers" else range(3)
    for row, client in zip(server[rows]["line.weight"], who, strict=False):
        if client >= 0:
            assert away(row[0].numpy(), own(run, "w")[int(client)]) == 0.0


def test_late_prototypes_of_the_same_data_are_the_same() -> None:
    """Nobody trains, and all clients have the same samples: so all have the same prototypes."""
    pool = tiny.data()
    samples = [np.arange(12)] * 6
    same = Pooled("same", pool.train_pool, pool.test_pool, samples, samples, 3)
    kept = Kept()
    tiny.simulate(
        data=same,
        algorithm=srpfl.FedProto(epochs=None, steps=0),
        participation=FedBuff(k=1),
        clock=Given((1.0, 1.5, 2.2, 3.1, 4.3, 5.7)),
        rounds=8,
        evaluate_every=0,
        watchers=[kept],
    )
    first, *others = [state.shared["prototypes"] for state in kept.states]
    for other in others:
        torch.testing.assert_close(other, first, rtol=1e-5, atol=1e-6)


class Two(Line):
    """Two clusters begin apart: the second with the numbers in another order."""

    def __init__(self) -> None:
        super().__init__()
        with torch.no_grad():
            self.line.weight.copy_(torch.tensor([[2.0, -1.0]]))


def test_a_late_answer_moves_its_own_cluster_from_where_that_is_now() -> None:
    kept = Kept()
    algorithm = srpfl.algorithms.IFCA(clusters=2, **{**SAME, "steps": 1})
    run = played(algorithm, 14, model=Two, participation=FedBuff(k=1), clock=CLOCK, watchers=[kept])
    models = [[np.array([2.0, -1.0]), np.array([-1.0, 2.0])]]
    models += [
        [weights(state), state.server["others"]["line.weight"][0, 0].numpy()]
        for state in kept.states
    ]
    late = 0
    for after, now in enumerate(models[1:], 1):
        record, before = run.rounds[after - 1], models[after - 1]
        [client], [age] = record.participants, record.ages
        begun = models[after - 1 - age]
        chosen = int(np.argmin([loss(client, x) for x in begun]))
        x = begun[chosen]
        step = -0.05 * slope(client, x)
        late += chosen == 1 and age > 0
        assert away(now[chosen], before[chosen] + (1 + age) ** -0.5 * step) < 1e-12
        assert away(now[1 - chosen], before[1 - chosen]) == 0.0
    assert late > 0


def slope(client: int, x: np.ndarray) -> np.ndarray:
    close = [(loss(client, x + d) - loss(client, x - d)) / 2e-3 for d in 1e-3 * np.eye(2)]
    return np.array(close)  # exact for a quadratic, but for rounding


@pytest.mark.parametrize("wire", ["int8", "top:0.5"])
def test_a_cluster_travels_by_how_it_has_moved(wire: str) -> None:
    """Nothing is learnt here, so nothing can be lost, far as the clusters are apart."""
    still = srpfl.SGD(lr=1e-20, weight_decay=0.0)
    algorithm = srpfl.algorithms.IFCA(clusters=2, wire=wire, **{**SAME, "rule": still})
    state = played(algorithm, 4, model=Two).state
    assert state is not None
    assert away(weights(state), np.array([2.0, -1.0])) < 1e-12
    other = state.server["others"]["line.weight"][0, 0].numpy()
    assert away(other, np.array([-1.0, 2.0])) < 1e-12


@pytest.mark.parametrize("wire", ["int8", "top:0.3"])
def test_units_that_a_client_does_not_have_take_no_room_on_the_wire(wire: str) -> None:
    run = tiny.simulate(
        algorithm=srpfl.HeteroFL(widths=(0.5,), wire=wire), rounds=2, evaluate_every=0
    )
    assert run.parts is not None
    client = run.rounds[-1].participants[0]
    lost = run.parts.slots_of(client)["wire"]
    [first, *_] = [value for value in lost.values() if value.ndim > 1]
    half = len(first) // 2
    assert first[:half].any()
    assert not first[half:].any()

"""Algorithms that remember, against twins of their papers' pseudo-code in NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import nn

import srpfl
import tiny
from algorithms.quadratic import (
    CLIENTS,
    LR,
    POINTS,
    ROUNDS,
    SAME,
    STEPS,
    TOLERANCE,
    X,
    Y,
    away,
    both_engines,
    gradient,
    local,
    optimum,
    own,
    played,
    weights,
)


def scaffold() -> np.ndarray:
    x, c = np.zeros(2), np.zeros(2)
    own = np.zeros((CLIENTS, 2))
    for _ in range(ROUNDS):
        shifts = [c - own[i] for i in range(CLIENTS)]
        y = [local(i, x, lambda w, shift=shifts[i]: shift) for i in range(CLIENTS)]
        after = np.stack([own[i] - c + (x - y[i]) / (STEPS * LR) for i in range(CLIENTS)])
        x, c, own = np.mean(y, 0), c + (after - own).mean(0), after
    return x


def fedadam() -> np.ndarray:
    x, m, v = np.zeros(2), np.zeros(2), np.full(2, 1e-6)
    for _ in range(ROUNDS):
        delta = np.mean([local(i, x) for i in range(CLIENTS)], 0) - x
        m, v = 0.9 * m + 0.1 * delta, 0.99 * v + 0.01 * delta**2
        x = x + 0.01 * m / (np.sqrt(v) + 1e-3)
    return x


def fedyogi() -> np.ndarray:
    x, m, v = np.zeros(2), np.zeros(2), np.full(2, 1e-6)
    for _ in range(ROUNDS):
        delta = np.mean([local(i, x) for i in range(CLIENTS)], 0) - x
        m, v = 0.9 * m + 0.1 * delta, v - 0.01 * delta**2 * np.sign(v - delta**2)
        x = x + 0.01 * m / (np.sqrt(v) + 1e-3)
    return x


def fedadagrad() -> np.ndarray:
    x, v = np.zeros(2), np.full(2, 1e-6)
    for _ in range(ROUNDS):
        delta = np.mean([local(i, x) for i in range(CLIENTS)], 0) - x
        v = v + delta**2
        x = x + 0.01 * delta / (np.sqrt(v) + 1e-3)
    return x


def fedavgm() -> np.ndarray:
    x, m = np.zeros(2), np.zeros(2)
    for _ in range(ROUNDS):
        m = 0.9 * m + np.mean([local(i, x) for i in range(CLIENTS)], 0) - x
        x = x + m
    return x


def fedprox() -> np.ndarray:
    x = np.zeros(2)
    for _ in range(ROUNDS):
        x = np.mean([local(i, x, lambda w, x=x: 0.01 * (w - x)) for i in range(CLIENTS)], 0)
    return x


def feddyn() -> np.ndarray:
    x, h = np.zeros(2), np.zeros(2)
    own = np.zeros((CLIENTS, 2))
    for _ in range(ROUNDS):
        w = []
        for i in range(CLIENTS):
            w.append(local(i, x, lambda w, x=x, g=own[i]: 0.1 * (w - x) - g))
        moves = np.stack(w) - x
        own, h = own - 0.1 * moves, h - 0.1 * moves.sum(0) / CLIENTS
        x = np.mean(w, 0) - h / 0.1
    return x


TWINS = {
    srpfl.SCAFFOLD: scaffold,
    srpfl.FedAdam: fedadam,
    srpfl.FedYogi: fedyogi,
    srpfl.FedAdagrad: fedadagrad,
    srpfl.FedAvgM: fedavgm,
    srpfl.FedProx: fedprox,
    srpfl.FedDyn: feddyn,
}


@both_engines
@pytest.mark.parametrize("kind", TWINS, ids=lambda kind: kind.__name__)
def test_the_shared_model_is_that_of_the_paper(kind: Any, engine: str) -> None:
    found = weights(played(kind(**SAME), engine=engine).state)
    assert away(found, TWINS[kind]()) < TOLERANCE


@both_engines
def test_scaffolds_momentum_gathers_gradients_alone(engine: str) -> None:
    x, c, own = np.zeros(2), np.zeros(2), np.zeros((CLIENTS, 2))
    for _ in range(ROUNDS):
        y = np.tile(x, (CLIENTS, 1))
        for i in range(CLIENTS):
            m = np.zeros(2)
            for _ in range(STEPS):
                m = 0.9 * m + gradient(i, y[i])
                y[i] = y[i] - LR * m - LR * (c - own[i])
        after = own - c + (x - y) / (STEPS * LR)
        x, c, own = y.mean(0), c + (after - own).mean(0), after
    rule = replace(SAME["rule"], momentum=0.9)
    found = weights(played(srpfl.SCAFFOLD(**{**SAME, "rule": rule}), engine=engine).state)
    assert away(found, x) < TOLERANCE


class InTurn(srpfl.Everyone):
    """Two of three clients, another pair in every round."""

    def choose(self, memory: Any, call: Any, idle: Any, rng: Any) -> tuple[int, ...]:
        return tuple(sorted({call.draw % CLIENTS, (call.draw + 1) % CLIENTS}))


@pytest.mark.parametrize("kind", [srpfl.SCAFFOLD, srpfl.FedDyn], ids=lambda kind: kind.__name__)
def test_where_some_take_part_all_clients_share_what_the_server_remembers(kind: Any) -> None:
    """SCAFFOLD's c moves by |S|/N of the mean, FedDyn's h by 1/N of the sum."""
    run = played(kind(**SAME), participation=InTurn(sample=2))
    x, c, own = np.zeros(2), np.zeros(2), np.zeros((CLIENTS, 2))
    for round in range(ROUNDS):
        some = sorted({round % CLIENTS, (round + 1) % CLIENTS})
        assert sorted(run.rounds[round].participants) == some
        if kind is srpfl.SCAFFOLD:
            y = {i: local(i, x, lambda w, shift=c - own[i]: shift) for i in some}
            new = {i: own[i] - c + (x - y[i]) / (STEPS * LR) for i in some}
            c = c + sum(new[i] - own[i] for i in some) / CLIENTS
            x = np.mean([y[i] for i in some], 0)
        else:
            y = {i: local(i, x, lambda w, x=x, g=own[i]: 0.1 * (w - x) - g) for i in some}
            new = {i: own[i] - 0.1 * (y[i] - x) for i in some}
            c = c - 0.1 / CLIENTS * sum(y[i] - x for i in some)
            x = np.mean([y[i] for i in some], 0) - c / 0.1
        for i in some:
            own[i] = new[i]
    assert away(weights(run.state), x) < TOLERANCE


BY_SAMPLES = [srpfl.SCAFFOLD, srpfl.FedDyn, srpfl.CA2FL]


@pytest.mark.parametrize("kind", BY_SAMPLES, ids=lambda kind: kind.__name__)
def test_by_samples_a_client_weighs_the_same_with_whomever_it_takes_part(kind: Any) -> None:
    """h, or SCAFFOLD's c, is the mean over all clients of n_i times what each keeps; the server
    divides it by the mean of the n_i that it has seen. So where h is zero, the sum by samples is.
    """
    sizes = np.array([2, 4, 6])
    xs, ys = ([rows[:n] for rows, n in zip(each, sizes, strict=True)] for each in (X, Y))
    algorithm = kind(weighting="samples", **SAME)
    run = played(algorithm, x=xs, y=ys, participation=InTurn(sample=2))
    x, h, kept = np.zeros(2), np.zeros(2), np.zeros((CLIENTS, 2))
    heard: list[int] = []
    for round in range(ROUNDS):
        some = sorted({round % CLIENTS, (round + 1) % CLIENTS})
        moved = {}
        for i in some:
            w, pull = x, 0.1 if kind is srpfl.FedDyn else 0.0
            c = h / np.mean(heard) if heard else h
            shift = {srpfl.FedDyn: -kept[i], srpfl.SCAFFOLD: c - kept[i]}.get(kind, 0)
            for _ in range(STEPS):
                slope = 2 * xs[i].T @ (xs[i] @ w - ys[i]) / sizes[i]
                w = w - LR * (slope + pull * (w - x) + shift)
            moved[i] = w - x
        heard += list(sizes[some])
        share = sizes[some] / sizes[some].sum()
        if kind is srpfl.FedDyn:
            step = share @ [moved[i] for i in some]
            kept[some] -= [0.1 * moved[i] for i in some]
            h = sizes @ kept / CLIENTS
            x = x + step - h / np.mean(heard) / 0.1
        elif kind is srpfl.SCAFFOLD:
            x = x + share @ [moved[i] for i in some]
            kept[some] = [kept[i] - c - moved[i] / (STEPS * LR) for i in some]
            h = sizes @ kept / CLIENTS
        else:
            x = x + h / np.mean(heard) + share @ [moved[i] - kept[i] for i in some]
            kept[some] = [moved[i] for i in some]
            h = sizes @ kept / CLIENTS
    assert away(weights(run.state), x) < TOLERANCE
    assert run.state is not None
    name = "c" if kind is srpfl.SCAFFOLD else "h"
    assert away(run.state.server[name]["line.weight"][0].numpy(), h) < TOLERANCE


@both_engines
def test_fedprox_without_a_pull_is_fedavg_bit_for_bit(engine: str) -> None:
    one = tiny.simulate(algorithm=srpfl.FedProx(mu=0.0), engine=engine)
    other = tiny.simulate(algorithm=srpfl.FedAvg(), engine=engine)
    assert one.state is not None
    assert other.state is not None
    assert tiny.same(one.state.shared, other.state.shared)


class Given:
    """A clock on which the last of three clients has time for half of its steps."""

    communication = 0.0
    fixed = True

    def times(self, seed: int, round: int, clients: Any, population: int, work: Any) -> Any:
        return np.array([1.0, 2.0, 4.0])[clients] * work.share


def test_fedprox_takes_what_a_straggler_has_done_by_the_deadline() -> None:
    policy = srpfl.Deadline(seconds=2.0, partial=True)
    run = played(srpfl.FedProx(mu=0.3, **SAME), clock=Given(), participation=policy)
    x = np.zeros(2)
    for _ in range(ROUNDS):
        after = []
        for i, steps in enumerate((STEPS, STEPS, STEPS // 2)):
            w = x
            for _ in range(steps):
                w = w - LR * (gradient(i, w) + 0.3 * (w - x))
            after.append(w)
        x = np.mean(after, 0)
    assert away(weights(run.state), x) < TOLERANCE
    assert {record.duration for record in run.rounds} == {2.0}
    assert all(len(record.participants) == CLIENTS for record in run.rounds)


def test_fedbn_keeps_normalisation_and_its_statistics() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    model.append(nn.RMSNorm(3)).append(nn.LayerNorm(3, elementwise_affine=False))
    run = tiny.simulate(model=model, algorithm=srpfl.FedBN())
    assert run.state is not None
    assert run.parts is not None
    assert set(run.state.shared) == {"0.weight", "0.bias", "3.weight", "3.bias"}
    assert {"1.running_mean", "4.weight"} <= set(run.parts.of(run.rounds[-1].participants[0]))
    with pytest.raises(srpfl.SrpflError, match="the model has none"):
        tiny.simulate(algorithm=srpfl.FedBN())


@pytest.mark.parametrize("strength", [0.0, 0.5])
def test_dittos_own_models_are_those_of_the_paper(strength: float) -> None:
    ditto = srpfl.Ditto(strength=strength, own_epochs=None, own_steps=STEPS, **SAME)
    run = played(ditto)
    assert away(weights(run.state), weights(played(srpfl.FedAvg(**SAME)).state)) == 0
    w, v = np.zeros(2), np.zeros((CLIENTS, 2))
    for _ in range(ROUNDS):
        v = np.stack([local(i, v[i], lambda v, w=w: strength * (v - w)) for i in range(CLIENTS)])
        w = np.mean([local(i, w) for i in range(CLIENTS)], 0)
    assert away(own(run, "v"), v) < TOLERANCE


def test_ditto_with_a_strong_pull_is_fedavg() -> None:
    # A step of length 1/(λ + curvature) lands next to the model that was sent.
    strength = 1e6
    rule = srpfl.SGD(lr=1 / strength, weight_decay=0.0)
    work: dict[str, Any] = {"epochs": None, "batch_size": POINTS, "rule": rule}
    run = played(srpfl.Ditto(strength=strength, own_epochs=None, own_steps=9, steps=STEPS, **work))
    before = played(srpfl.FedAvg(steps=STEPS, **work), rounds=ROUNDS - 1)
    assert away(own(run, "v"), weights(before.state)) < 1e-4  # gradients of about 10 over λ


@pytest.mark.slow
def test_scaffold_feddyn_and_fedgate_come_to_the_optimum_where_fedavg_does_not() -> None:
    rule = srpfl.SGD(lr=0.1, weight_decay=0.0)
    many: dict[str, Any] = {"epochs": None, "steps": 5, "batch_size": POINTS, "rule": rule}
    made = [kind(**many) for kind in (srpfl.SCAFFOLD, srpfl.FedGATE, srpfl.FedAvg)]
    far = {
        type(algorithm).__name__: away(
            weights(played(algorithm, rounds=60, engine="loop").state), optimum()
        )
        for algorithm in (*made, srpfl.FedDyn(alpha=1.0, **many))
    }
    assert max(far["SCAFFOLD"], far["FedDyn"], far["FedGATE"]) < 1e-8, far
    assert far["FedAvg"] == pytest.approx(0.144, abs=0.001)


@pytest.mark.parametrize("algorithm", [srpfl.SCAFFOLD(), srpfl.FedAdam(), srpfl.Ditto()], ids=type)
@pytest.mark.parametrize(
    "policy", [srpfl.Doubling(start=1, every=2), srpfl.Auto(start=2)], ids=type
)
def test_who_does_not_take_part_keeps_what_it_has(algorithm: Any, policy: Any) -> None:
    run = tiny.simulate(algorithm=algorithm, participation=policy, rounds=4)
    assert run.parts is not None
    heard = {client for record in run.rounds for client in record.participants}
    for client in range(6):
        untouched = tiny.same(run.parts.kept(client), run.parts.initial)
        assert untouched == (client not in heard or not run.parts.initial)

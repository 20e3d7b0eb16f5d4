"""Methods that give each client a model of its own, against twins of their papers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import srpfl
from algorithms.quadratic import (
    CLIENTS,
    LR,
    ROUNDS,
    SAME,
    STEPS,
    TOLERANCE,
    Start,
    away,
    both_engines,
    gradient,
    local,
    loss,
    own,
    played,
    weights,
)


class Begun(Start):
    """A line through the origin that begins elsewhere, at (-2, -1)."""

    def __init__(self) -> None:
        super().__init__()
        self.line.weight = nn.Parameter(torch.tensor([[-2.0, -1.0]], dtype=torch.float64))


def apfl(alpha: float, learn: bool) -> tuple[np.ndarray, np.ndarray, list[float]]:
    w, v, alphas = np.zeros(2), np.zeros((CLIENTS, 2)), [alpha] * CLIENTS
    for _ in range(ROUNDS):
        after = []
        for i in range(CLIENTS):
            y = w
            for _ in range(STEPS):
                a = alphas[i]
                mixed = gradient(i, a * v[i] + (1 - a) * y)
                slope = (v[i] - y) @ mixed
                y, v[i] = y - LR * gradient(i, y), v[i] - LR * a * mixed
                alphas[i] = min(1.0, max(0.0, a - LR * slope)) if learn else a
            after.append(y)
        w = np.mean(after, 0)
    return w, v, alphas


@both_engines
@pytest.mark.parametrize("learn", [False, True])
def test_apfl_is_that_of_the_paper(learn: bool, engine: str) -> None:
    run = played(srpfl.APFL(alpha=0.25, learn_alpha=learn, **SAME), engine=engine)
    w, v, alphas = apfl(0.25, learn)
    assert away(weights(run.state), w) < TOLERANCE
    assert away(own(run, "v"), v) < TOLERANCE
    assert run.parts is not None
    for i in range(CLIENTS):
        assert float(run.parts.slots_of(i)["alpha"]["alpha"]) == pytest.approx(alphas[i], abs=1e-7)
    assert (len(set(alphas)) == CLIENTS) == learn


def test_apfl_is_fedavg_at_one_end_and_local_training_at_the_other() -> None:
    shared = weights(played(srpfl.FedAvg(**SAME)).state)
    for alpha in (0.0, 1.0):
        algorithm = srpfl.APFL(alpha=alpha, learn_alpha=False, **SAME)
        run = played(algorithm)
        assert run.state is not None
        assert run.parts is not None
        alone = np.zeros((CLIENTS, 2))
        for _ in range(ROUNDS):
            alone = np.stack([local(i, alone[i]) for i in range(CLIENTS)])
        for i in range(CLIENTS):
            mine = algorithm.own(run.state.shared, {}, run.parts.slots_of(i))
            expected = shared if alpha == 0 else alone[i]
            assert away(mine["line.weight"][0].numpy(), expected) < TOLERANCE


def pfedme() -> tuple[np.ndarray, np.ndarray]:
    x, theta = np.zeros(2), np.zeros((CLIENTS, 2))
    for _ in range(ROUNDS):
        after = []
        for i in range(CLIENTS):
            w, theta[i] = x, x
            for _ in range(STEPS):
                for _ in range(5):
                    theta[i] = theta[i] - LR * (gradient(i, theta[i]) + 2.0 * (theta[i] - w))
                w = w - 0.1 * 2.0 * (w - theta[i])
            after.append(w)
        x = 0.5 * x + 0.5 * np.mean(after, 0)
    return x, theta


@both_engines
def test_pfedme_is_that_of_the_paper(engine: str) -> None:
    run = played(srpfl.PFedMe(strength=2.0, w_lr=0.1, beta=0.5, **SAME), engine=engine)
    x, theta = pfedme()
    assert away(weights(run.state), x) < TOLERANCE
    assert away(own(run, "theta"), theta) < TOLERANCE


def test_pfedmes_theta_solves_its_proximal_problem() -> None:
    work = {**SAME, "steps": 1}
    algorithm = srpfl.PFedMe(strength=2.0, inner_steps=400, w_lr=0.1, **work)
    run = played(algorithm, rounds=1, engine="loop")
    for i, theta in enumerate(own(run, "theta")):
        left = gradient(i, theta) + 2.0 * (theta - np.zeros(2))  # w was zero
        assert np.abs(left).max() < TOLERANCE


def l2gd(strength: float) -> np.ndarray:
    x, mean = np.zeros((CLIENTS, 2)), np.zeros(2)
    for _ in range(ROUNDS):
        pulled = x - LR * strength * STEPS * (x - mean)
        x = np.stack([local(i, pulled[i]) for i in range(CLIENTS)])
        mean = x.mean(0)
    return x


@both_engines
@pytest.mark.parametrize("strength", [0.0, 0.7])
def test_l2gd_is_that_of_the_paper(strength: float, engine: str) -> None:
    run = played(srpfl.L2GD(strength=strength, **SAME), engine=engine)
    assert away(own(run, "x"), l2gd(strength)) < TOLERANCE
    assert away(weights(run.state), l2gd(strength).mean(0)) < TOLERANCE


@both_engines
def test_first_order_per_fedavg_is_that_of_the_paper(engine: str) -> None:
    from srpfl.algorithms.per_fedavg import FirstOrderMAML

    rule = FirstOrderMAML(alpha=0.02, beta=0.05)
    run = played(srpfl.PerFedAvg(**{**SAME, "rule": rule}), engine=engine)
    x = np.zeros(2)
    for _ in range(ROUNDS):
        after = []
        for i in range(CLIENTS):
            w = x
            for _ in range(STEPS):
                w = w - 0.05 * gradient(i, w - 0.02 * gradient(i, w))
            after.append(w)
        x = np.mean(after, 0)
    assert away(weights(run.state), x) < TOLERANCE


@both_engines
def test_mean_regularised_learning_is_that_of_the_paper(engine: str) -> None:
    run = played(srpfl.MeanRegularised(strength=0.7, **SAME), engine=engine)
    w, mean = np.zeros((CLIENTS, 2)), np.zeros(2)
    for _ in range(ROUNDS):
        after = [local(i, w[i], lambda v, m=mean: 0.7 * (v - m)) for i in range(CLIENTS)]
        mean, w = mean + (np.stack(after) - w).mean(0), np.stack(after)
    assert away(own(run, "w"), w) < TOLERANCE
    assert away(weights(run.state), mean) < TOLERANCE


def test_mean_regularised_learning_solves_its_problem() -> None:
    strength = 0.7
    rule = srpfl.SGD(lr=0.2, weight_decay=0.0)
    algorithm = srpfl.MeanRegularised(strength=strength, **{**SAME, "steps": 1, "rule": rule})
    run = played(algorithm, rounds=150, engine="loop")
    found = own(run, "w")
    for i, w in enumerate(found):
        left = gradient(i, w) + strength * (w - found.mean(0))
        assert np.abs(left).max() < 1e-5  # what 150 rounds leave of about 1


@both_engines
def test_ifca_is_that_of_the_paper(engine: str) -> None:
    run = played(srpfl.IFCA(clusters=2, **SAME), model=Begun, pretrained=True, engine=engine)
    assert run.state is not None
    models = [np.array([-2.0, -1.0])]
    first = srpfl.IFCA(clusters=2).server_state(srpfl.IFCA().split(Begun()))["others"]
    models.append(first["line.weight"][0, 0].numpy())
    assert models[1].tolist() == [-1.0, -2.0]
    chosen: list[int] = []
    for _ in range(ROUNDS):
        chosen = [int(np.argmin([loss(i, w) for w in models])) for i in range(CLIENTS)]
        after = [local(i, models[chosen[i]]) for i in range(CLIENTS)]
        for k in range(2):
            mine = [after[i] for i in range(CLIENTS) if chosen[i] == k]
            models[k] = np.mean(mine, 0) if mine else models[k]
    assert away(weights(run.state), models[0]) < TOLERANCE
    assert away(run.state.server["others"]["line.weight"][0, 0].numpy(), models[1]) < TOLERANCE
    assert set(chosen) == {0, 1}


def test_one_cluster_is_fedavg() -> None:
    one = played(srpfl.IFCA(clusters=1, **SAME)).state
    assert away(weights(one), weights(played(srpfl.FedAvg(**SAME)).state)) < TOLERANCE


@both_engines
def test_fedamp_is_that_of_the_paper(engine: str) -> None:
    algorithm = srpfl.FedAMP(peers=CLIENTS, alpha=0.5, strength=0.3, sigma=2.0, **SAME)
    run = played(algorithm, engine=engine)
    w = np.zeros((CLIENTS, 2))
    for round in range(ROUNDS):
        squares = ((w[:, None] - w[None]) ** 2).sum(2)
        xi = 0.5 / 2.0 * np.exp(-squares / 2.0) * (round > 0)
        np.fill_diagonal(xi, 0)
        np.fill_diagonal(xi, 1 - xi.sum(1))
        u = xi @ w
        w = np.stack(
            [local(i, u[i], lambda v, u=u[i]: 0.3 / 0.5 * (v - u)) for i in range(CLIENTS)]
        )
    assert away(own(run, "w"), w) < TOLERANCE


def test_what_cannot_be_is_refused() -> None:
    cases: list[tuple[Any, dict[str, Any]]] = [
        (srpfl.APFL, {"alpha": 2.0}),
        (srpfl.PFedMe, {"inner_steps": 0}),
        (srpfl.IFCA, {"clusters": 0}),
        (srpfl.FedAMP, {"peers": 0}),
        (srpfl.L2GD, {"rule": srpfl.Adam()}),
        (srpfl.FedNova, {"rule": srpfl.Adam()}),
        (srpfl.FedGATE, {"rule": srpfl.SGD(momentum=0.5)}),
        (srpfl.MimeLite, {"beta": 1.0}),
        (srpfl.FedShuffle, {"reference": 0.0}),
    ]
    for kind, settings in cases:
        with pytest.raises(srpfl.SrpflError, match=r"need|knows|at least"):
            kind(**settings)

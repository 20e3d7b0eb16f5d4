"""MOCHA's coupling of tasks, against closed forms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

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
    played,
)
from algorithms.quadratic import own as kept
from srpfl.algorithms.mocha import learnt


def mocha(strength: float, coupling: str) -> np.ndarray:
    w, sent = np.zeros((CLIENTS, 2)), np.zeros((CLIENTS, 2))
    eye = np.eye(CLIENTS)
    omega = CLIENTS * eye if coupling == "learnt" else eye - 1 / CLIENTS
    for _ in range(ROUNDS):
        after = []
        for i in range(CLIENTS):
            v = w[i]
            others = sum(omega[i, j] * sent[j] for j in range(CLIENTS) if j != i)
            for _ in range(STEPS):
                v = v - LR * (gradient(i, v) + strength * (omega[i, i] * v + others))
            after.append(v)
        w = sent = np.stack(after)
        if coupling == "learnt":
            values, vectors = np.linalg.eigh(w @ w.T)
            root = (vectors * np.sqrt(values.clip(0))) @ vectors.T
            omega = np.linalg.inv(root / np.trace(root) / 2 + eye / CLIENTS / 2)
    return w


@both_engines
@pytest.mark.parametrize("coupling", ["learnt", "mean"])
def test_mochas_steps_are_those_on_its_objective(coupling: Any, engine: str) -> None:
    algorithm = srpfl.MOCHA(tasks=CLIENTS, strength=0.05, coupling=coupling, **SAME)
    assert away(kept(played(algorithm, engine=engine), "w"), mocha(0.05, coupling)) < TOLERANCE


def test_what_is_learnt_is_the_inverse_of_the_tasks_covariance() -> None:
    w = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 6)))
    omega = learnt(w).numpy()
    values, vectors = np.linalg.eigh((w @ w.T).numpy())
    sigma = (vectors * np.sqrt(values)) @ vectors.T
    sigma = 0.5 * sigma / np.trace(sigma) + 0.5 * np.eye(4) / 4
    assert away(omega @ sigma, np.eye(4)) < TOLERANCE


def closed_form(
    x: Sequence[np.ndarray], y: Sequence[np.ndarray], omega: np.ndarray, strength: float, l2: float
) -> np.ndarray:
    """Where every gradient is zero: one linear system of all tasks."""
    tasks, size = len(x), x[0].shape[1]
    left = strength * np.kron(omega, np.eye(size)) + l2 * np.eye(tasks * size)
    right = np.zeros(tasks * size)
    for i in range(tasks):
        mine = slice(i * size, (i + 1) * size)
        left[mine, mine] += 2 * x[i].T @ x[i] / len(y[i])
        right[mine] = 2 * x[i].T @ y[i] / len(y[i])
    return np.linalg.solve(left, right).reshape(tasks, size)


def solved(
    x: Sequence[np.ndarray], y: Sequence[np.ndarray], strength: float, l2: float, **choices: Any
) -> np.ndarray:
    """Models of all tasks by MOCHA, each coupled to the mean."""
    made = type("Made", (Start,), {"size": x[0].shape[1]})
    algorithm = srpfl.MOCHA(
        tasks=len(x),
        strength=strength,
        coupling="mean",
        epochs=None,
        steps=choices.pop("steps"),
        batch_size=max(map(len, y)),
        rule=srpfl.SGD(lr=choices.pop("lr"), weight_decay=l2),
    )
    run = played(algorithm, x=x, y=y, model=made, **choices)
    assert run.parts is not None
    rows = [run.parts.slots_of(i)["w"]["line.weight"][0].numpy() for i in range(len(x))]
    return np.stack(rows)


def test_it_comes_to_the_closed_form_on_data_like_school() -> None:
    # Unequal tasks, features of 0 and 1 beside numbers, and targets that share most of a line.
    rng = np.random.default_rng(2)
    common, x, y = rng.normal(size=4), [], []
    for size in (7, 12, 20):
        binary, numbers = rng.integers(2, size=(size, 2)), rng.normal(size=(size, 2))
        x.append(np.concatenate([binary, numbers], 1))
        y.append(x[-1] @ (common + 0.3 * rng.normal(size=4)) + rng.normal(size=size))
    found = solved(x, y, 1.0, 0.2, rounds=40, steps=10, lr=0.1, engine="loop")
    expected = closed_form(x, y, np.eye(3) - 1 / 3, 1.0, 0.2)
    assert away(found, expected) < 1e-6  # what 400 steps leave of about 1
    alone = closed_form(x, y, np.zeros((3, 3)), 0.0, 0.2)
    assert away(expected, alone) > 0.1  # the coupling matters


@pytest.mark.slow
def test_it_comes_to_the_closed_form_on_school(
    real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (real_data / "school").is_dir():
        pytest.skip(f"no real data: {real_data} has no school")
    monkeypatch.setenv("SRPFL_CACHE", str(tmp_path))
    data = srpfl.data.load("school", data_dir=real_data)
    some = range(8)
    x, y = [], []
    for school in some:
        inputs, scores = data.train(school)
        x.append(data.transform.prepare(torch.from_numpy(inputs), torch.float64).numpy())
        y.append(scores.astype(np.float64) / 10)  # scores go up to 70
    found = solved(x, y, 1.0, 0.3, rounds=60, steps=20, lr=0.1, engine="loop")
    expected = closed_form(x, y, np.eye(8) - 1 / 8, 1.0, 0.3)
    assert away(found, expected) < 1e-6

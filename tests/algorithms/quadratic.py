"""Quadratics of three clients, for twins of papers' pseudo-code in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import srpfl
from srpfl.data.base import Pooled, Samples
from srpfl.runs.state import State

CLIENTS, POINTS, ROUNDS, STEPS, LR = 3, 6, 5, 4, 0.05
TOLERANCE = 1e-9  # of rounding alone, in double precision

both_engines = pytest.mark.parametrize("engine", ["loop", "vectorised"])

rng = np.random.default_rng(0)
X = rng.normal(size=(CLIENTS, POINTS, 2))
Y = np.einsum("cnd,cd->cn", X, rng.normal(size=(CLIENTS, 2))) + rng.normal(size=(CLIENTS, POINTS))
RULE = srpfl.SGD(lr=LR, weight_decay=0.0)
SAME: dict[str, Any] = {"epochs": None, "steps": STEPS, "batch_size": POINTS, "rule": RULE}


def gradient(client: int, w: np.ndarray) -> np.ndarray:
    return 2 * X[client].T @ (X[client] @ w - Y[client]) / POINTS


def loss(client: int, w: np.ndarray) -> float:
    return float(np.mean((X[client] @ w - Y[client]) ** 2))


class Start(nn.Module):
    """A line through the origin, which begins there."""

    size = 2

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(self.size, 1, bias=False, dtype=torch.float64)
        nn.init.zeros_(self.line.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.line(x)
        return found


def played(
    algorithm: Any,
    rounds: int = ROUNDS,
    x: Sequence[np.ndarray] = X,
    y: Sequence[np.ndarray] = Y,
    model: type[nn.Module] = Start,
    **choices: Any,
) -> srpfl.Run:
    pool = Samples(np.concatenate(x), np.concatenate(y))
    parts = np.split(np.arange(len(pool.y)), np.cumsum([len(each) for each in y])[:-1])
    return srpfl.simulate(
        data=Pooled("quadratic", pool, pool, parts, parts, 0),
        model=model,
        algorithm=algorithm,
        task=srpfl.Regression(),
        rounds=rounds,
        precision="float64",
        evaluate_every=0,
        **choices,
    )


def weights(state: State | None) -> np.ndarray:
    assert state is not None
    return state.shared["line.weight"][0].numpy()


def local(
    client: int, w: np.ndarray, shift: Callable[[np.ndarray], Any] = lambda w: 0
) -> np.ndarray:
    for _ in range(STEPS):
        w = w - LR * (gradient(client, w) + shift(w))
    return w


def own(run: srpfl.Run, slot: str) -> np.ndarray:
    """What each client keeps by that name."""
    assert run.parts is not None
    kept = [run.parts.slots_of(client)[slot]["line.weight"][0] for client in range(CLIENTS)]
    return np.stack([each.numpy() for each in kept])


def optimum(shares: Sequence[float] = (1, 1, 1)) -> np.ndarray:
    """Of the clients' weighted sum."""
    hessian = sum(share * X[i].T @ X[i] for i, share in enumerate(shares))
    return np.linalg.solve(hessian, sum(share * X[i].T @ Y[i] for i, share in enumerate(shares)))


def away(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max())

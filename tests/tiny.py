"""Data and models small enough for exact references."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import srpfl
from srpfl.core.split import Params
from srpfl.data.base import Pooled, Samples
from srpfl.engine.base import Job
from srpfl.engine.loop import LoopEngine


def data(clients: int = 6, per_client: int = 12, features: int = 4, classes: int = 3) -> Pooled:
    rng = np.random.default_rng(0)
    count = clients * per_client
    centres = rng.normal(size=(classes, features))

    def pool() -> Samples:
        y = rng.integers(classes, size=count)
        x = centres[y] + 0.5 * rng.normal(size=(count, features))
        return Samples(x.astype(np.float32), y.astype(np.int64))

    parts = np.split(np.arange(count), clients)
    return Pooled("tiny", pool(), pool(), parts, parts, classes)


def model(features: int = 4, classes: int = 3) -> torch.nn.Module:
    torch.manual_seed(0)
    return srpfl.models.MLP(features, (8, 5), classes=classes)


def wide() -> torch.nn.Module:
    """One whose weights are most of a run's bytes."""
    torch.manual_seed(0)
    return srpfl.models.MLP(4, (2000, 5), classes=3)


def simulate(**changes: Any) -> srpfl.Run:
    choices: dict[str, Any] = {
        "data": data(),
        "model": model(),
        "algorithm": srpfl.FedRep(head_epochs=2, body_epochs=1),
        "participation": srpfl.Doubling(start=1, every=2),
        "rounds": 4,
        "seed": 0,
        "engine": "loop",
    }
    return srpfl.simulate(**{**choices, **changes})


def train_once(
    algorithm: Any, *, clients: tuple[int, ...] = (0,), net: torch.nn.Module | None = None
) -> tuple[Params, Params, list[Any]]:
    """One local update of some clients from the same state: (shared, personal, results)."""
    net = net or model()
    parts = algorithm.split(net)
    personal = [parts.personal] * len(clients)
    job = Job(0, 0, "train", clients, parts.shared, personal, algorithm.plans(net))
    [locals_] = LoopEngine(net, data()).train([job])
    replies = [local.reply for local in locals_]
    return parts.shared, parts.personal, replies


def same(one: Params, other: Params) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)

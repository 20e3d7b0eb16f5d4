"""One of each algorithm that a method of the command has."""

from __future__ import annotations

from typing import Any

from torch import nn

import srpfl
import tiny
from srpfl.algorithms import Algorithm
from srpfl.options.methods import METHODS

KINDS: dict[str, type[Algorithm]] = {
    method.algorithm.__name__: method.algorithm for method in METHODS.values()
}


# Smaller than usual, where that saves time; a method that is not here is tried as it is.
SMALL: dict[str, dict[str, Any]] = {
    "FedAMP": {"peers": 6},
    "FedRep": {"head_epochs": 2},
    "MAPPER": {"grid": (0.25, 0.75)},
    "MOCHA": {"tasks": 6},
    "PFedMe": {"inner_steps": 2},
}


def algorithm(name: str) -> Any:
    return KINDS[name](**SMALL.get(name, {}))


def model(name: str) -> nn.Module:
    if name == "FedBN":
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    return tiny.model()


def simulate(name: str, **changes: Any) -> srpfl.Run:
    """A short run on tiny data."""
    choices = {"participation": srpfl.Everyone(), "rounds": 3, **changes}
    return tiny.simulate(algorithm=algorithm(name), model=model(name), **choices)


def remembered(run: srpfl.Run) -> dict[str, Any]:
    """All tensors of a run's end, by name."""
    assert run.state is not None
    assert run.parts is not None
    found: dict[str, Any] = dict(run.state.shared)
    for slot, part in run.state.server.items():
        found |= {f"server {slot} {name}": value for name, value in part.items()}
    for client, kept in run.parts.trained.items():
        found |= {f"client {client} {name}": value for name, value in kept.items()}
    return found

"""Deployment on Flower: the simulator's algorithms and policies on real clients.

Needs ``pip install 'srpfl[flower]'``; nothing else in srpfl imports it. Nothing is imported before
it is used: a probe that asks how a deployment is doing needs neither Flower nor PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors and type checkers; at run time __getattr__ finds the same
    from srpfl.flower.client import client_app
    from srpfl.flower.data import OwnData, share_of
    from srpfl.flower.experiment import Experiment, Patience
    from srpfl.flower.server import server_app

__all__ = ["Experiment", "OwnData", "Patience", "client_app", "server_app", "share_of"]

HOMES = {
    "Experiment": "experiment",
    "OwnData": "data",
    "Patience": "experiment",
    "client_app": "client",
    "server_app": "server",
    "share_of": "data",
}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'srpfl.flower' has no attribute '{name}'")
    try:
        import flwr  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "deployment needs Flower: pip install 'srpfl[flower]'", name="flwr"
        ) from error
    found = getattr(import_module(f".{HOMES[name]}", __name__), name)
    globals()[name] = found  # found once, it is found at once
    return found

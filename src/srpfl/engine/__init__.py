"""Engines: how a cohort's local updates are computed. All give the same answers."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from srpfl.data.base import Federated
from srpfl.engine.base import Engine, Job, Local, Score
from srpfl.engine.loop import LoopEngine
from srpfl.engine.precision import Precision
from srpfl.engine.vectorised import VectorisedEngine
from srpfl.engine.workers import WorkersEngine, can_fork, cores
from srpfl.errors import ConfigError, unknown

ENGINES = ("auto", "loop", "workers", "vectorised")
LARGE = 50_000  # parameters from which worker processes pay


def make_engine(
    name: str,
    model: nn.Module,
    data: Federated,
    *,
    device: str = "auto",
    precision: str = "float32",
) -> Engine:
    """An engine by name; ``"auto"`` takes the fastest that can train the model."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    where = chosen_device(device)
    Precision.of(precision)
    inner = VectorisedEngine if name == "vectorised" else _fitting
    make = partial(inner, model, data, device=where, precision=precision)
    if name == "auto":
        name = "workers" if where.type == "cpu" and _worth_workers(model) else "vectorised"
    if name == "workers":
        if where.type != "cpu":
            raise ConfigError("workers are processes on CPU cores: a GPU takes engine='vectorised'")
        if not can_fork():
            raise ConfigError("worker processes need Linux: engine='vectorised' works here")
        return WorkersEngine(make, data)
    return LoopEngine(model, data, device=where, precision=precision) if name == "loop" else make()


def chosen_device(name: str) -> torch.device:
    """The device by name; ``"auto"`` is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise unknown("device", name, ("auto", "cpu", "cuda"))
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("there is no GPU that PyTorch can use here: device='cpu' works")
    return device


def _worth_workers(model: nn.Module) -> bool:
    """Whether a client's steps take long enough to make up for telling other processes."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return can_fork() and cores() > 1 and parameters >= LARGE


def _fitting(model: nn.Module, data: Federated, **choices: Any) -> Engine:
    """Clients as one where the model allows it, else one after another."""
    try:
        return VectorisedEngine(model, data, **choices)
    except ConfigError:
        return LoopEngine(model, data, **choices)


__all__ = [
    "ENGINES",
    "Engine",
    "Job",
    "Local",
    "LoopEngine",
    "Score",
    "VectorisedEngine",
    "WorkersEngine",
    "chosen_device",
    "make_engine",
]

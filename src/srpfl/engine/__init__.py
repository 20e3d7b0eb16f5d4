"""Engines: how a cohort's local updates are computed. All give the same answers."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from srpfl.data.base import Federated
from srpfl.engine.base import Engine, Job, Local, Score
from srpfl.engine.fit import check_gradient
from srpfl.engine.fitting import FittingEngine, stacks
from srpfl.engine.loop import LoopEngine
from srpfl.engine.precision import Precision
from srpfl.engine.vectorised import VectorisedEngine
from srpfl.engine.workers import WorkersEngine, can_fork, cores
from srpfl.errors import ConfigError, unknown
from srpfl.task import Classification, Task

ENGINES = ("auto", "loop", "workers", "vectorised", "ray")
LARGE = 50_000  # parameters from which worker processes pay


def make_engine(
    name: str,
    model: nn.Module,
    data: Federated,
    *,
    task: Task = Classification(),
    device: str = "auto",
    precision: str = "float32",
) -> Engine:
    """An engine by name; ``"auto"`` takes the fastest that can train the model."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    Precision.of(precision)
    check_gradient(model, data)
    if name == "ray":
        return _on_ray(model, data, task=task, device=device, precision=precision)
    # Asked for workers on any device, a machine with a GPU has cores all the same.
    where = chosen_device("cpu" if (name, device) == ("workers", "auto") else device)
    choices: dict[str, Any] = {"task": task, "device": where, "precision": precision}
    if name == "loop":
        return LoopEngine(model, data, **choices)
    if name == "vectorised":
        return VectorisedEngine(model, data, **choices)
    if name == "workers" and where.type != "cpu":
        raise ConfigError("workers are processes on CPU cores: a GPU takes engine='vectorised'")
    if name == "workers" and not can_fork():
        raise ConfigError("worker processes need Linux: engine='vectorised' works here")
    make = partial(FittingEngine, model, data, stacks=stacks(model, data, task, where), **choices)
    if name == "workers" or (where.type == "cpu" and _worth_workers(model)):
        return WorkersEngine(make, data)
    return make()


def _on_ray(
    model: nn.Module, data: Federated, *, task: Task, device: str, precision: str
) -> Engine:
    from srpfl.engine.ray import RayEngine, gpus

    where = torch.device("cuda" if gpus() else "cpu") if device == "auto" else chosen_device(device)
    choices: dict[str, Any] = {"task": task, "device": where, "precision": precision}
    fits = stacks(model, data, task, where)
    make = partial(FittingEngine, model, data, stacks=fits, **choices)
    return RayEngine(make, data, on_gpus=where.type == "cuda")


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

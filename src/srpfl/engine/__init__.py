"""Engines: how a cohort's local updates are computed. All give the same answers."""

from __future__ import annotations

import torch
from torch import nn

from srpfl.data.base import Federated
from srpfl.engine.base import Engine, Job, Local, Score
from srpfl.engine.loop import LoopEngine
from srpfl.engine.vectorised import VectorisedEngine, refuse_batch_statistics
from srpfl.errors import ConfigError, unknown

ENGINES = ("auto", "loop", "vectorised")


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
    if name == "auto":
        name = "vectorised" if _stacks(model) else "loop"
    if name == "vectorised":
        return VectorisedEngine(model, data, device=where, precision=precision)
    return LoopEngine(model, data, device=where, precision=precision)


def chosen_device(name: str) -> torch.device:
    """The device by name; ``"auto"`` is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise unknown("device", name, ("auto", "cpu", "cuda")) from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("there is no GPU that PyTorch can use here: device='cpu' works")
    return device


def _stacks(model: nn.Module) -> bool:
    try:
        refuse_batch_statistics(model)
    except ConfigError:
        return False
    return True


__all__ = [
    "ENGINES",
    "Engine",
    "Job",
    "Local",
    "LoopEngine",
    "Score",
    "VectorisedEngine",
    "chosen_device",
    "make_engine",
]

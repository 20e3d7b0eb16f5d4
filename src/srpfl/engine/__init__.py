"""Engines: how a cohort's local updates are computed."""

from __future__ import annotations

from torch import nn

from srpfl.data.base import Federated
from srpfl.engine.base import Engine, Job, Local, Score
from srpfl.engine.loop import LoopEngine
from srpfl.errors import unknown

ENGINES = ("auto", "loop")


def make_engine(
    name: str,
    model: nn.Module,
    data: Federated,
    *,
    device: str = "auto",
    precision: str = "float32",
) -> Engine:
    """An engine by name."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    return LoopEngine(model, data)


__all__ = ["ENGINES", "Engine", "Job", "Local", "LoopEngine", "Score", "make_engine"]

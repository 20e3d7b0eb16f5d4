"""Numbers to predict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from srpfl.core.fields import check_fields
from srpfl.errors import ConfigError, unknown
from srpfl.task.base import Task, fitting

METRICS = ("rmse", "mse", "mae", "r2")


@dataclass(frozen=True, kw_only=True)
class Regression(Task):
    """Squared (or absolute) error; judged by its root mean, mean, or the share explained (R²).

    >>> Regression(metric="rmse").value([8.0], 2.0)
    2.0
    """

    error: Literal["squared", "absolute"] = "squared"
    metric: Literal["rmse", "mse", "mae", "r2"] = "rmse"  # type: ignore[misc]

    def __post_init__(self) -> None:
        check_fields(self)
        if self.metric not in METRICS:
            raise unknown("metric", self.metric, METRICS)
        if self.error not in ("squared", "absolute"):
            raise unknown("error", self.error, ("squared", "absolute"))

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]
        return self.metric == "r2"

    def loss(self, outputs: Any, y: Tensor) -> Tensor:
        apart = _apart(outputs, y)
        return apart.square().mean(1) if self.error == "squared" else apart.abs().mean(1)

    def score(self, outputs: Any, y: Tensor) -> Tensor:
        apart = _apart(outputs, y)
        if self.metric == "mae":
            return apart.abs().mean(1)
        squares = apart.square().mean(1)
        if self.metric != "r2":
            return squares
        flat = y.to(apart.dtype).reshape(len(y), -1)
        return torch.stack([squares, flat.mean(1), flat.square().mean(1)], 1)

    def value(self, sums: Sequence[float], weight: float) -> float:
        mean = sums[0] / weight
        if self.metric == "rmse":
            return math.sqrt(mean)
        if self.metric != "r2":
            return mean
        spread = sums[2] / weight - (sums[1] / weight) ** 2
        return 1 - mean / spread if spread > 0 else 0.0

    def check_outputs(self, outputs: Any, y: Tensor, classes: int) -> None:
        if not isinstance(outputs, Tensor):
            raise ConfigError("the model must return a tensor of numbers")
        fitting(outputs, y)


def _apart(outputs: Tensor, y: Tensor) -> Tensor:
    return (fitting(outputs, y) - y.to(outputs.dtype)).reshape(len(y), -1)

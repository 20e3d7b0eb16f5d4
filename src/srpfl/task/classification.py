"""One class of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from srpfl.errors import ConfigError
from srpfl.task.base import Task


@dataclass(frozen=True, kw_only=True)
class Classification(Task):
    """Cross entropy and accuracy; a model returns a score for each class."""

    metric: ClassVar[str] = "accuracy"

    def loss(self, outputs: Any, y: Tensor) -> Tensor:
        return F.cross_entropy(outputs, y, reduction="none")

    def score(self, outputs: Any, y: Tensor) -> Tensor:
        right: Tensor = outputs.argmax(1) == y
        return right

    def possible(self, sums: Sequence[float], weight: float) -> bool:
        return len(sums) == 1 and 0 <= sums[0] <= weight < math.inf

    def check_labels(self, y: NDArray[Any], classes: int) -> str | None:
        whole = y.ndim == 1 and y.dtype.kind in "iu"
        if whole and (not len(y) or (y.min() >= 0 and y.max() < classes)):
            return None
        hint = ""
        if y.dtype.kind == "f":
            hint = " (numbers to predict are task=srpfl.Regression())"
        elif y.ndim == 2:
            hint = " (several labels per sample are task=srpfl.MultiLabel() or NextToken())"
        known = f"whole numbers from 0 to {classes - 1}" if classes else "the numbers of classes"
        return f"must be {known}{hint}"

    def check_outputs(self, outputs: Any, y: Tensor, classes: int) -> None:
        if not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != len(y):
            raise ConfigError(
                "the model must return one row of scores, one for each class, per sample"
            )
        if outputs.shape[1] < classes:
            raise ConfigError(
                f"the model tells {outputs.shape[1]} classes apart and the data has {classes}: "
                "give its last layer as many outputs"
            )

"""Any number of labels per sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from srpfl.errors import ConfigError
from srpfl.task.base import Task, fitting


@dataclass(frozen=True, kw_only=True)
class MultiLabel(Task):
    """Binary cross entropy for each label; judged by the share of labels that are right."""

    metric: ClassVar[str] = "label accuracy"

    def loss(self, outputs: Any, y: Tensor) -> Tensor:
        each = F.binary_cross_entropy_with_logits(outputs, y.to(outputs.dtype), reduction="none")
        return each.reshape(len(y), -1).mean(1)

    def score(self, outputs: Any, y: Tensor) -> Tensor:
        right: Tensor = (outputs > 0) == (y > 0.5)
        return right.to(outputs.dtype).reshape(len(y), -1).mean(1)

    def check_labels(self, y: NDArray[Any], classes: int) -> str | None:
        if y.ndim == 2 and y.dtype.kind in "iufb" and bool(np.isin(y, (0, 1)).all()):
            return None
        return "must be rows of 0 and 1, one for each label"

    def check_outputs(self, outputs: Any, y: Tensor, classes: int) -> None:
        if not isinstance(outputs, Tensor):
            raise ConfigError("the model must return one score for each label")
        fitting(outputs, y)

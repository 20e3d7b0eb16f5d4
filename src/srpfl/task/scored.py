"""A task judged by a metric of your own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from srpfl.core.fields import check_fields
from srpfl.errors import ConfigError
from srpfl.task.base import Losses, Task
from srpfl.task.classification import Classification

CLASSES = Classification()


@dataclass(frozen=True, kw_only=True)
class Scored(Task):
    """Another task's loss and a score of your own: one number per sample. Their mean is the metric.

    Targets, plots, tables and the report follow it.

    >>> def top3(outputs, y):
    ...     return (outputs.topk(3).indices == y[:, None]).any(1)
    >>> Scored(name="top-3 accuracy", by=top3).metric
    'top-3 accuracy'
    """

    name: str
    by: Callable[[Any, Tensor], Losses]
    task: Task = CLASSES
    better: str = "higher"  # or "lower"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.better not in ("higher", "lower"):
            raise ConfigError(f"better must be 'higher' or 'lower', not '{self.better}'")

    @property
    def metric(self) -> str:  # type: ignore[override]
        return self.name

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]
        return self.better == "higher"

    @property
    def weighs(self) -> bool:  # type: ignore[override]
        return self.task.weighs

    def loss(self, outputs: Any, y: Tensor) -> Losses:
        return self.task.loss(outputs, y)

    def score(self, outputs: Any, y: Tensor) -> Losses:
        return self.by(outputs, y)

    def value(self, sums: Sequence[float], weight: float) -> float:
        return sums[0] / weight

    def check_labels(self, y: NDArray[Any], classes: int) -> str | None:
        return self.task.check_labels(y, classes)

    def check_outputs(self, outputs: Any, y: Tensor, classes: int) -> None:
        self.task.check_outputs(outputs, y, classes)

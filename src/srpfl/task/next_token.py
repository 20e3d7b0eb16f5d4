"""The next token at every place of a sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from srpfl.core.fields import check_fields
from srpfl.errors import ConfigError, unknown
from srpfl.task.base import Task

IGNORE = -100  # the label of places that do not count, as PyTorch has it


@dataclass(frozen=True, kw_only=True)
class NextToken(Task):
    """Cross entropy per token; judged by accuracy per token, or by perplexity.

    A model returns scores for every place (samples x places x tokens), labels are tokens (samples
    x places), and -100 marks places that do not count.

    >>> round(NextToken(metric="perplexity").value([math.log(4) * 10], 10.0), 6)
    4.0
    """

    metric: Literal["accuracy", "perplexity"] = "accuracy"  # type: ignore[misc]

    weighs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self)
        if self.metric not in ("accuracy", "perplexity"):
            raise unknown("metric", self.metric, ("accuracy", "perplexity"))

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]
        return self.metric == "accuracy"

    def loss(self, outputs: Any, y: Tensor) -> tuple[Tensor, Tensor]:
        scores = outputs.transpose(1, 2)
        each = F.cross_entropy(scores, y, reduction="none", ignore_index=IGNORE)
        return each.sum(1), (y != IGNORE).sum(1).to(each.dtype)

    def score(self, outputs: Any, y: Tensor) -> tuple[Tensor, Tensor]:
        if self.metric == "perplexity":
            return self.loss(outputs, y)
        counts = y != IGNORE
        right = (outputs.argmax(2) == y) & counts
        return right.sum(1).to(outputs.dtype), counts.sum(1).to(outputs.dtype)

    def value(self, sums: Sequence[float], weight: float) -> float:
        mean = sums[0] / weight
        # Beyond the largest number there is, a perplexity is as bad as can be.
        return mean if self.metric == "accuracy" else math.exp(min(mean, 700.0))

    def check_labels(self, y: NDArray[Any], classes: int) -> str | None:
        tokens = y.ndim == 2 and y.dtype.kind in "iu"
        if tokens and (not y.size or y.min() >= 0 or set(y[y < 0].tolist()) == {IGNORE}):
            return None
        return f"must be rows of whole numbers, one for each place ({IGNORE} where none counts)"

    def check_outputs(self, outputs: Any, y: Tensor, classes: int) -> None:
        if not isinstance(outputs, Tensor) or outputs.ndim != 3 or outputs.shape[:2] != y.shape:
            raise ConfigError(
                "the model must return scores for every place of a sequence: samples x places x "
                "tokens"
            )
        if int(y.max()) >= outputs.shape[2]:
            raise ConfigError(
                f"the model knows {outputs.shape[2]} tokens and the labels go up to {int(y.max())}"
            )

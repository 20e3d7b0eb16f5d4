"""What a model's outputs mean: a loss to train by, and a score to judge by.

A task of your own needs a loss and a score, each one number per sample:

>>> class Angle(Task):
...     metric, higher_is_better = "error", False
...     def loss(self, outputs, y):
...         return (1 - (outputs[:, 0] - y).cos())
...     def score(self, outputs, y):
...         return (outputs[:, 0] - y).abs()
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from srpfl.errors import ConfigError

Losses = Tensor | tuple[Tensor, Tensor]  # one number per sample, or sums and what to divide by


@dataclass(frozen=True, kw_only=True)
class Task:
    """A loss, a score, and which way is better."""

    metric: ClassVar[str] = "score"
    higher_is_better: ClassVar[bool] = True
    weighs: ClassVar[bool] = False  # whether the loss comes with weights

    def loss(self, outputs: Any, y: Tensor) -> Losses:
        """One loss per sample; a batch's loss is their mean. Where samples weigh differently (by
        their tokens), sums and weights: a batch's loss is the one's sum over the other's."""
        raise NotImplementedError(f"{type(self).__name__} has no loss")

    def score(self, outputs: Any, y: Tensor) -> Losses:
        """One number per sample, or several (samples x numbers), or those with a weight each."""
        raise NotImplementedError(f"{type(self).__name__} has no score")

    def value(self, sums: Sequence[float], weight: float) -> float:
        """The metric, from scores summed over samples: their mean, unless said otherwise."""
        return sums[0] / weight

    def check_labels(self, y: NDArray[Any], classes: int) -> str | None:
        """What is wrong with these labels, if anything."""
        finite = y.dtype.kind in "iub" or (y.dtype.kind == "f" and bool(np.isfinite(y).all()))
        return None if finite else "must be finite numbers"

    def check_outputs(self, outputs: Any, y: Tensor, classes: int) -> None:
        """Refuse a model whose outputs do not fit the labels."""
        losses = self.loss(outputs, y)
        shapes = [tuple(part.shape) for part in (losses if isinstance(losses, tuple) else [losses])]
        if any(shape != (len(y),) for shape in shapes):
            raise ConfigError(
                f"the task's loss must be one number per sample, and is of shape {shapes[0]} for "
                f"{len(y)} samples"
            )

    def possible(self, sums: Sequence[float], weight: float) -> bool:
        """Whether a client can have come to these scores; asked of what real clients say."""
        return all(map(math.isfinite, (*sums, weight))) and weight >= 0


def summed(values: Losses) -> tuple[Tensor, Tensor]:
    """Scores of samples as numbers (samples x numbers) and weights (samples)."""
    sums, weights = values if isinstance(values, tuple) else (values, None)
    sums = (sums if sums.ndim > 1 else sums[:, None]).double()
    return sums, sums.new_ones(len(sums)) if weights is None else weights.double()


def fitting(outputs: Tensor, y: Tensor) -> Tensor:
    """Outputs in the shape of the labels: a column of one number per sample may stand for a row."""
    if outputs.shape == y.shape:
        return outputs
    if outputs.ndim == y.ndim + 1 and outputs.shape == (*y.shape, 1):
        return outputs[..., 0]
    raise ConfigError(
        f"the model returns {_shape(outputs)} and the labels are {_shape(y)}: give its last layer "
        "as many outputs as a label has numbers"
    )


def _shape(tensor: Tensor) -> str:
    each = tuple(tensor.shape[1:])
    return f"{math.prod(each)} numbers per sample" if each else "one number per sample"

"""Means of tensors by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from srpfl.core.devices import on_gpu
from srpfl.core.split import Params

Weighting = Literal["uniform", "samples"]  # how much each of many counts

SMALL = 1 << 15  # numbers of a model whose sums fit a core's own memory


def weighted_mean(
    parts: Sequence[Params], weights: Sequence[float], like: Params | None = None
) -> Params:
    """The weighted mean of tensors by name, summed in double precision, in the dtypes of ``like``
    or of the first part.

    >>> mean = weighted_mean([{"a": torch.tensor([1.0])}, {"a": torch.tensor([4.0])}], [2, 1])
    >>> float(mean["a"])
    2.0
    """
    found, mean = double_mean(parts, weights), {}
    for name, value in found.items():
        kind = (like or parts[0])[name]
        # Shares such as 1/3 are not exact: a count must not be cut to the one below.
        mean[name] = (value if kind.is_floating_point() else value.round()).to(kind.dtype)
    return mean


def weights_by(weighting: Weighting, samples: Sequence[int]) -> list[float]:
    """How much clients with so many samples count."""
    return [float(each) if weighting == "samples" else 1.0 for each in samples]


def double_mean(parts: Sequence[Params], weights: Sequence[float]) -> Params:
    """The weighted mean as it is summed: the mean of such means is that of all parts."""
    total = sum(weights)
    shares = [weight / total for weight in weights]
    return _small_sums(parts, shares) or {
        name: _weighted_sum([part[name] for part in parts], shares) for name in parts[0]
    }


def _small_sums(parts: Sequence[Params], shares: Sequence[float]) -> Params:
    """All sums at once where they fit a core's own memory together: the same additions in the same
    order, with one call for each part. Nothing for larger models, and on a GPU."""
    like = parts[0]
    numbers = sum(value.numel() for value in like.values())
    if not 0 < numbers <= SMALL or any(on_gpu(value) for value in like.values()):
        return {}
    sums = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in like.items()}
    totals = list(sums.values())
    for part, share in zip(parts, shares, strict=True):
        torch._foreach_add_(totals, [part[name] for name in like], alpha=share)
    return sums


def _weighted_sum(values: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    """In double precision: on a GPU in one go, on a CPU one by one, in memory that stays cached."""
    if on_gpu(values[0]):
        weights = torch.tensor(shares, dtype=torch.float64, device=values[0].device)
        rows = torch.stack(list(values)).double().reshape(len(values), -1)  # counts have no axes
        return (weights @ rows).reshape(values[0].shape)
    total = torch.zeros_like(values[0], dtype=torch.float64)
    for value, share in zip(values, shares, strict=True):
        total.add_(value, alpha=share)
    return total

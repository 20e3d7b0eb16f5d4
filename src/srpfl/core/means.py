"""Means of tensors by name."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from srpfl.core.devices import on_gpu
from srpfl.core.split import Params

SMALL = 1 << 15  # numbers of a model whose sums fit a core's own memory


def weighted_mean(parts: Sequence[Params], weights: Sequence[float]) -> Params:
    """The weighted mean of tensors by name, summed in double precision.

    >>> mean = weighted_mean([{"a": torch.tensor([1.0])}, {"a": torch.tensor([4.0])}], [2, 1])
    >>> float(mean["a"])
    2.0
    """
    total = sum(weights)
    shares = [weight / total for weight in weights]
    mean = {}
    small = _small_sums(parts, shares)
    for name, like in parts[0].items():
        average = small[name] if small else _weighted_sum([part[name] for part in parts], shares)
        # Shares such as 1/3 are not exact: a count must not be cut to the one below.
        mean[name] = (average if like.is_floating_point() else average.round()).to(like.dtype)
    return mean


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

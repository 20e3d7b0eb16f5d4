"""The normalisation between a convolution and its ReLU."""

from __future__ import annotations

from torch import nn

from srpfl.errors import unknown

GROUPS = 8


def norm(kind: str, channels: int) -> nn.Module:
    """GroupNorm looks at one sample only; BatchNorm also keeps statistics of a client's data.

    >>> norm("group", 16).num_groups
    8
    """
    if kind == "group":
        return nn.GroupNorm(GROUPS, channels)
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    raise unknown("norm", kind, ["group", "batch"])

"""Where tensors are."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

GPUS = ("cuda",)  # kinds of devices that are told what to do and go on by themselves


def on_gpu(where: torch.device | Tensor) -> bool:
    """Whether this is a GPU, or on one.

    >>> on_gpu(torch.zeros(2))
    False
    """
    device = where.device if isinstance(where, Tensor) else where
    return device.type in GPUS


def moved(part: Mapping[str, Tensor], to: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The part's tensors where those of the other are: what was trained may still be on a GPU, and
    what a run began with, or was read from a folder, is not."""
    device = next((value.device for value in to.values()), None)
    return {name: value.to(device) for name, value in part.items()}

"""Texts of different lengths: padded once, and cut to what a batch needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from srpfl.core.trees import mapped
from srpfl.data.base import Transform

MASK = "attention_mask"
SHORTEST = 8


@dataclass(frozen=True)
class Padded(Transform):
    """Inputs by name, of which ``attention_mask`` says where a text is. What is padding in every
    text of a batch is cut off; lengths are powers of two, so that there are few different shapes.

    >>> ids = torch.arange(24).reshape(2, 12)
    >>> mask = (ids % 12 < 3).long()
    >>> {name: x.shape[1] for name, x in Padded().prepare(
    ...     {"input_ids": ids, "attention_mask": mask}).items()}
    {'input_ids': 8, 'attention_mask': 8}
    """

    scale: bool = False

    def prepare(self, x: Any, dtype: torch.dtype = torch.float32) -> Any:
        if not isinstance(x, Mapping) or MASK not in x:
            return super().prepare(x, dtype)
        whole = x[MASK].shape[1]
        used = int(x[MASK].any(0).nonzero().max()) + 1 if x[MASK].any() else 1
        length = min(whole, max(SHORTEST, 1 << (used - 1).bit_length()))

        def cut(tensor: Any) -> Any:
            return tensor[:, :length] if tensor.shape[1:2] == (whole,) else tensor

        return super().prepare(mapped(cut, dict(x)), dtype)

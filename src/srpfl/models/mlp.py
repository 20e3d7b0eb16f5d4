"""Fully connected networks: fc1, fc2, ... with ReLU between."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn


class MLP(nn.Module):
    """An MLP on flattened inputs.

    >>> [name for name, _ in MLP(64, (64, 32), classes=10).named_children()]
    ['fc1', 'fc2', 'fc3']
    """

    def __init__(self, inputs: int, hidden: Sequence[int], *, classes: int) -> None:
        super().__init__()
        sizes = [inputs, *hidden, classes]
        for number, (before, after) in enumerate(pairwise(sizes), start=1):
            self.add_module(f"fc{number}", nn.Linear(before, after))

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        *hidden, last = self.children()
        for layer in hidden:
            x = F.relu(layer(x))
        logits: Tensor = last(x)
        return logits

"""LeNet-5 as the paper's CIFAR experiments use it."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class LeNet5(nn.Module):
    """Two 5x5 convolutions, each with ReLU and 2x2 max-pooling, then three linear layers.

    The defaults are those for CIFAR-10; CIFAR-100 has ``conv=(64, 128)``, ``linear=(256, 128)``
    and ``dropout=0.6`` after the second linear layer.

    >>> import torch
    >>> LeNet5(classes=10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        classes: int,
        channels: int = 3,
        size: int = 32,
        conv: tuple[int, int] = (64, 64),
        linear: tuple[int, int] = (120, 64),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        pooled = ((size - 4) // 2 - 4) // 2
        self.conv1 = nn.Conv2d(channels, conv[0], 5)
        self.conv2 = nn.Conv2d(conv[0], conv[1], 5)
        self.fc1 = nn.Linear(conv[1] * pooled * pooled, linear[0])
        self.fc2 = nn.Linear(linear[0], linear[1])
        self.dropout = nn.Dropout(dropout)
        self.fc3 = nn.Linear(linear[1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        x = self.dropout(F.relu(self.fc2(x)))
        logits: Tensor = self.fc3(x)
        return logits

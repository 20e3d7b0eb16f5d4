"""A small network in the manner of VGG (Simonyan and Zisserman, 2015)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class VGG(nn.Module):
    """Pairs of 3x3 convolutions with ReLU, each pair followed by 2x2 max-pooling; then a linear
    layer and a linear ``head``.

    >>> import torch
    >>> VGG(classes=10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        classes: int,
        channels: int = 3,
        size: int = 32,
        widths: tuple[int, ...] = (32, 64, 128),
        linear: int = 256,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in widths:
            for before in (channels, width):
                layers += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU()]
            layers.append(nn.MaxPool2d(2))
            channels, size = width, size // 2
        self.features = nn.Sequential(*layers)
        self.fc = nn.Linear(channels * size * size, linear)
        self.head = nn.Linear(linear, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.fc(self.features(x).flatten(1)))
        logits: Tensor = self.head(x)
        return logits

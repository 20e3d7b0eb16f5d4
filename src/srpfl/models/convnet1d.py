"""A convolutional network for signals."""

from __future__ import annotations

from torch import Tensor, nn


class ConvNet1d(nn.Module):
    """Three convolutions over time, each with BatchNorm, ReLU and pooling, then a linear ``head``.

    >>> import torch
    >>> ConvNet1d()(torch.zeros(2, 9, 128)).shape
    torch.Size([2, 6])
    """

    def __init__(self, channels: int = 9, classes: int = 6, *, width: int = 32) -> None:
        super().__init__()
        self.conv1 = _block(channels, width)
        self.conv2 = _block(width, 2 * width)
        self.conv3 = _block(2 * width, 2 * width)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv3(self.conv2(self.conv1(x)))
        logits: Tensor = self.head(x.mean(dim=-1))
        return logits


def _block(channels: int, width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(channels, width, 5, padding=2, bias=False),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.MaxPool1d(2),
    )

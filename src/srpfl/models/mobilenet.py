"""A small network of depthwise separable convolutions, in the manner of MobileNet (Howard et al.,
2017)."""

from __future__ import annotations

from torch import Tensor, nn

from srpfl.models._norm import norm

STAGES = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1))  # channels and stride


class MobileNet(nn.Module):
    """A 3x3 convolution, then blocks of a 3x3 convolution per channel and a 1x1 convolution across
    channels, each with normalisation and ReLU; a linear ``head`` follows the mean over all places.

    >>> import torch
    >>> MobileNet(classes=10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(self, *, classes: int, norm: str = "group", channels: int = 3) -> None:
        super().__init__()
        layers = _layers(channels, 32, norm)
        before = 32
        for width, stride in STAGES:
            layers += _layers(before, before, norm, stride=stride, groups=before)
            layers += _layers(before, width, norm, size=1)
            before = width
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(before, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x).mean(dim=(-2, -1)))
        return logits


def _layers(
    channels: int, width: int, kind: str, *, size: int = 3, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    conv = nn.Conv2d(
        channels, width, size, stride=stride, padding=size // 2, groups=groups, bias=False
    )
    return [conv, norm(kind, width), nn.ReLU()]

"""Residual networks for small images (He et al., 2016)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from srpfl.errors import unknown
from srpfl.models._norm import norm

# Blocks per stage, and the channels of each stage.
DEPTHS = {20: (3, (16, 32, 64)), 18: (2, (64, 128, 256, 512))}


class ResNet(nn.Module):
    """ResNet-20 (0.27 million weights) or ResNet-18 (11 million), with the stem for 32 x 32 images:
    one 3x3 convolution, no pooling. A linear ``head`` follows the mean over all places.

    >>> import torch
    >>> ResNet(20, classes=10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, depth: int = 20, *, classes: int, norm: str = "group", channels: int = 3
    ) -> None:
        super().__init__()
        if depth not in DEPTHS:
            raise unknown("depth of ResNet", str(depth), map(str, DEPTHS))
        count, widths = DEPTHS[depth]
        self.conv, self.norm = _conv_norm(channels, widths[0], norm, stride=1)
        blocks: list[nn.Module] = []
        before = widths[0]
        for stage, width in enumerate(widths):
            for place in range(count):
                stride = 2 if stage > 0 and place == 0 else 1
                blocks.append(Block(before, width, stride, norm))
                before = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(before, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(F.relu(self.norm(self.conv(x))))
        logits: Tensor = self.head(x.mean(dim=(-2, -1)))
        return logits


class Block(nn.Module):
    """Two 3x3 convolutions added to their input; where the shape changes, to a 1x1 convolution."""

    def __init__(self, channels: int, width: int, stride: int, kind: str) -> None:
        super().__init__()
        self.conv1, self.norm1 = _conv_norm(channels, width, kind, stride=stride)
        self.conv2, self.norm2 = _conv_norm(width, width, kind, stride=1)
        self.shortcut = (
            nn.Sequential(*_conv_norm(channels, width, kind, stride=stride, size=1))
            if stride > 1 or channels != width
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(inner)) + self.shortcut(x))


def _conv_norm(
    channels: int, width: int, kind: str, *, stride: int, size: int = 3
) -> tuple[nn.Module, nn.Module]:
    conv = nn.Conv2d(channels, width, size, stride=stride, padding=size // 2, bias=False)
    return conv, norm(kind, width)

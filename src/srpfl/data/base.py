"""The federated view of data: who holds which samples, and how samples become inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

IntArray = NDArray[np.int64]


class Samples(NamedTuple):
    """Inputs (uint8 images or floats, samples first) and integer labels."""

    x: NDArray[np.generic]
    y: IntArray


@dataclass(frozen=True)
class Transform:
    """From stored samples to a model's input: optional crop and flip, then normalisation.

    Bytes are scaled to [0, 1] first. Crop and flip are for training only; what is drawn for a
    sample is decided by the caller, so that every engine applies the same one.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    crop: int = 0  # padding of the random crop, in pixels
    flip: bool = False

    @property
    def augments(self) -> bool:
        return self.crop > 0 or self.flip

    def prepare(self, x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Scale and normalise; channels are the second axis of images."""
        scaled = x.to(dtype) / 255 if x.dtype == torch.uint8 else x.to(dtype)
        if self.mean == (0.0,) and self.std == (1.0,):
            return scaled
        shape = (1, -1, *[1] * (x.ndim - 2)) if x.ndim > 2 else (1, -1)
        mean = torch.tensor(self.mean, dtype=dtype, device=x.device).reshape(shape)
        std = torch.tensor(self.std, dtype=dtype, device=x.device).reshape(shape)
        return (scaled - mean) / std

    def augment(self, x: Tensor, draws: Tensor) -> Tensor:
        """Crop and flip stored images as drawn.

        ``draws`` holds, per image, the crop's row and column (0 .. 2·crop) and the flip (0, 1).
        What the crop brings in from outside is black, as in the usual CIFAR recipe.
        """
        height, width = x.shape[-2:]
        rows = torch.arange(height, device=x.device) + draws[:, 0:1]
        columns = torch.arange(width, device=x.device).expand(len(x), width)
        if self.flip:
            columns = torch.where(draws[:, 2:3] > 0, width - 1 - columns, columns)
        columns = columns + draws[:, 1:2]
        padded = torch.nn.functional.pad(x, (self.crop,) * 4)
        images = torch.arange(len(x), device=x.device)[:, None, None]
        # Advanced indexing puts the channel axis last; move it back.
        return padded.movedim(1, -1)[images, rows[:, :, None], columns[:, None, :]].movedim(-1, 1)


class Federated(Protocol):
    """What a run needs to know of its data. Engines ask client by client, so nothing forces the
    samples of all clients into memory at once."""

    @property
    def clients(self) -> int: ...

    @property
    def classes(self) -> int: ...

    @property
    def transform(self) -> Transform: ...

    def size(self, client: int) -> int:
        """The number of training samples of a client."""
        ...

    def train(self, client: int) -> Samples: ...

    def test(self, client: int) -> Samples: ...


@dataclass(frozen=True)
class Pooled:
    """Clients as index lists into common arrays: the usual case."""

    name: str
    train_pool: Samples
    test_pool: Samples
    train_parts: Sequence[IntArray]
    test_parts: Sequence[IntArray]
    classes: int
    transform: Transform = Transform()

    @property
    def clients(self) -> int:
        return len(self.train_parts)

    def size(self, client: int) -> int:
        return len(self.train_parts[client])

    def train(self, client: int) -> Samples:
        part = self.train_parts[client]
        return Samples(self.train_pool.x[part], self.train_pool.y[part])

    def test(self, client: int) -> Samples:
        part = self.test_parts[client]
        return Samples(self.test_pool.x[part], self.test_pool.y[part])

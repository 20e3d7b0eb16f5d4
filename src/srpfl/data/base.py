"""The federated view of data: who holds which samples, and how samples become inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srpfl.core.trees import mapped, take

IntArray = NDArray[np.int64]
SHORT = (torch.uint8, torch.int8, torch.int16)  # kept as they are, and widened for embeddings


class Samples(NamedTuple):
    """Inputs and labels, samples first: inputs are an array, or a tuple or dict of arrays; labels
    are whatever the task takes (whole numbers for classes)."""

    x: Any
    y: NDArray[Any]


@dataclass(frozen=True)
class Transform:
    """From stored images to a model's input: optional crop and flip, then normalisation.

    Bytes are scaled to [0, 1] first. Crop and flip are for training only; what is drawn for a
    sample is decided by the caller, so that every engine applies the same one. With
    ``scale=False`` samples are taken as they are: bytes and other whole numbers stay what they are,
    as tokens must.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    crop: int = 0  # padding of the random crop, in pixels
    flip: bool = False
    scale: bool = True  # bytes to [0, 1]

    @property
    def augments(self) -> bool:
        return self.crop > 0 or self.flip

    @property
    def normalises(self) -> bool:
        return self.mean != (0.0,) or self.std != (1.0,)

    def rescales(self, x: Any) -> bool:
        """Whether whole numbers become others."""
        return self.normalises or (self.scale and x.dtype in (np.uint8, torch.uint8))

    def prepare(self, x: Any, dtype: torch.dtype = torch.float32) -> Any:
        """Scale and normalise; channels are the second axis of images. Numbers with a point become
        ``dtype``; whole ones stay whole unless they are scaled or normalised."""
        return mapped(lambda tensor: self._prepare(tensor, dtype), x)

    def _prepare(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        bytes_scaled = self.scale and x.dtype == torch.uint8
        if not (bytes_scaled or self.normalises or x.is_floating_point()):
            return x.long() if x.dtype in SHORT else x
        scaled = x.to(dtype) / 255 if bytes_scaled else x.to(dtype)
        if not self.normalises:
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
    def classes(self) -> int:
        """How many classes there are; 0 where labels are none."""
        ...

    @property
    def transform(self) -> Transform: ...

    def size(self, client: int) -> int:
        """The number of training samples of a client."""
        ...

    def train(self, client: int) -> Samples: ...

    def test(self, client: int) -> Samples: ...


@dataclass(frozen=True, repr=False)
class Pooled:
    """Clients as index lists into common arrays: the usual case.

    ``names`` says what the clients were called and ``labels`` what the classes were, where they had
    other names than numbers: client 3 is ``names[3]``.
    """

    name: str
    train_pool: Samples
    test_pool: Samples
    train_parts: Sequence[IntArray]
    test_parts: Sequence[IntArray]
    classes: int
    transform: Transform = Transform(scale=False)
    task: str = "classification"  # the usual one of these data
    names: Sequence[str] = ()
    labels: Sequence[str] = ()

    def __repr__(self) -> str:
        samples = sum(len(part) for part in self.train_parts)
        classes = f", {self.classes} classes" if self.classes else ""
        return (
            f"<{type(self).__name__} {self.name}: {self.clients} clients, {samples} training "
            f"samples{classes}>"
        )

    @property
    def clients(self) -> int:
        return len(self.train_parts)

    def size(self, client: int) -> int:
        return len(self.train_parts[client])

    def train(self, client: int) -> Samples:
        part = self.train_parts[client]
        return Samples(take(self.train_pool.x, part), self.train_pool.y[part])

    def test(self, client: int) -> Samples:
        part = self.test_parts[client]
        return Samples(take(self.test_pool.x, part), self.test_pool.y[part])

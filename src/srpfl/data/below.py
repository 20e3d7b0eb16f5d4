"""What lies below the lowest trained layer, computed once for each sample and kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from srpfl.core.backbone import numbers_of
from srpfl.core.trees import gathered, mapped, take
from srpfl.data.base import Federated, Samples, Transform
from srpfl.data.padded import Padded
from srpfl.errors import ConfigError
from srpfl.models.cut import Below, beside, cut

BATCH = 64


@dataclass(frozen=True)
class Precomputed:
    """Clients whose samples have gone through the frozen layers already."""

    name: str
    trained: tuple[Samples, ...]
    tested: tuple[Samples, ...]
    classes: int
    transform: Transform
    task: str = "classification"
    names: Sequence[str] = ()
    labels: Sequence[str] = ()

    @property
    def clients(self) -> int:
        return len(self.trained)

    def size(self, client: int) -> int:
        return len(self.trained[client].y)

    def train(self, client: int) -> Samples:
        return self.trained[client]

    def test(self, client: int) -> Samples:
        return self.tested[client]


def precomputed(
    data: Federated, model: nn.Module, *, device: str | torch.device = "cpu"
) -> tuple[Precomputed, nn.Module]:
    """Samples as the model's first trained block sees them, and the model from there on.

    A run on the two gives what one on the originals gives, without the frozen layers below: where
    adapters are on the upper layers only, that is most of the work. Dropout below is off. Inputs
    stay with the samples, for masks and the like.

    >>> from srpfl.data.loading import load
    >>> net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    >>> _ = net[0].requires_grad_(False)
    >>> data, rest = precomputed(load("digits", clients=4), net)
    >>> [tuple(array.shape[1:]) for array in data.train(0).x]
    [(32,), (64,)]
    """
    if data.transform.augments:
        raise ConfigError("what is cropped and flipped at random cannot be computed once")
    padded = isinstance(data.transform, Padded)
    # Not cut to a batch's longest here: all samples must have one length.
    plain = Transform(scale=False) if padded else data.transform
    below, above = cut(model, _inputs(data.train(0), 0, plain, 2, numbers_of(model)))
    below.to(device)
    return Precomputed(
        getattr(data, "name", type(data).__name__),
        tuple(_through(below, data.train(n), plain, device) for n in range(data.clients)),
        tuple(_through(below, data.test(n), plain, device) for n in range(data.clients)),
        data.classes,
        Padded() if padded else Transform(scale=False),
        **{
            name: getattr(data, name) for name in ("task", "names", "labels") if hasattr(data, name)
        },
    ), above


def _through(
    below: Below, samples: Samples, transform: Transform, device: str | torch.device
) -> Samples:
    parts = []
    for start in range(0, max(1, len(samples.y)), BATCH):
        x = _inputs(samples, start, transform, BATCH, numbers_of(below))
        with torch.no_grad():
            features = below(mapped(lambda tensor: tensor.to(device), x)).cpu()
        parts.append(mapped(_array, beside(features, x)))
    return Samples(gathered(np.concatenate, parts), samples.y)


def _inputs(
    samples: Samples, start: int, transform: Transform, count: int, numbers: torch.dtype
) -> object:
    some = take(samples.x, slice(start, start + count))
    return transform.prepare(mapped(lambda array: torch.from_numpy(array.copy()), some), numbers)


def _array(tensor: torch.Tensor) -> np.ndarray:
    """NumPy has no bfloat16."""
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()

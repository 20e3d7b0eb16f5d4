"""What is measured: a model, data that can be learnt, and a method's local work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import nn

from srpfl.algorithms import Algorithm, FedAvg, FedRep
from srpfl.data.base import IntArray, Pooled, Samples, Transform
from srpfl.models import MLP, LeNet5


@dataclass(frozen=True)
class BenchCase:
    """One row of the table."""

    about: str
    model: Callable[[], nn.Module]
    algorithm: Algorithm
    shape: tuple[int, ...]
    clients: int
    samples: int
    augment: bool = False

    def data(self) -> Pooled:
        """Noise around one pattern per class; every client has all classes."""
        rng = np.random.default_rng(0)
        classes = 10
        patterns = rng.integers(64, 192, size=(classes, *self.shape))

        def pool(count: int) -> tuple[Samples, list[IntArray]]:
            y = rng.integers(0, classes, size=count * self.clients)
            noise = rng.normal(0, 48, size=(len(y), *self.shape))
            x = np.clip(patterns[y] + noise, 0, 255).astype(np.uint8)
            parts = [np.asarray(p) for p in np.split(np.arange(len(y)), self.clients)]
            return Samples(x, y), parts

        train, train_parts = pool(self.samples)
        test, test_parts = pool(10)
        crop = 4 if self.augment else 0
        transform = Transform((0.5,), (0.25,), crop=crop, flip=self.augment)
        return Pooled("patterns", train, test, train_parts, test_parts, classes, transform)


def _mlp() -> nn.Module:
    return MLP(784, (512, 256, 64), classes=10)


def _lenet() -> nn.Module:
    return LeNet5(classes=10)


def _digits() -> nn.Module:
    return MLP(64, (64, 32), classes=10)


_paper = FedRep(head_epochs=10, body_epochs=1)
SETTINGS = {
    "mlp": BenchCase(
        "fedrep, MLP 784-512-256-64, 10 head and 5 representation epochs",
        _mlp, FedRep(head_epochs=10, body_epochs=5), (784,), 10, 75,
    ),
    "mlp-short": BenchCase(
        "the same with 1 representation epoch",
        _mlp, FedRep(head_epochs=10, body_epochs=1), (784,), 10, 75,
    ),
    "lenet": BenchCase(
        "fedrep, LeNet-5, 10 head epochs and 1 representation epoch", _lenet, _paper,
        (3, 32, 32), 4, 100,
    ),
    "lenet-augmented": BenchCase(
        "the same with random crops and flips", _lenet, _paper, (3, 32, 32), 4, 100, augment=True
    ),
    "light": BenchCase(
        "fedavg, the demo's MLP, one epoch", _digits, FedAvg(epochs=1), (64,), 100, 29
    ),
    "pfl-cnn": BenchCase(
        "fedavg on pfl's CIFAR protocol: 50 clients, 50 images each", _lenet, FedAvg(epochs=1),
        (3, 32, 32), 50, 50,
    ),
    "pfl-mlp": BenchCase(
        "the same clients with the MLP", _mlp, FedAvg(epochs=1), (784,), 50, 50
    ),
}  # fmt: skip

"""What the paper's experiments use on each data set: the defaults behind the options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from srpfl.models import MLP, LeNet5


@dataclass(frozen=True)
class Recipe:
    """Defaults for one data set (spec of the experiments)."""

    model: Callable[[int], nn.Module]  # from the number of classes
    clients: int = 100
    shards: int = 5
    epochs: int = 5  # of methods with one phase
    head_epochs: int = 10  # τ_h
    body_epochs: int = 5  # τ_φ
    classes: int | None = None  # how many of the data set's first classes are used
    per_client: int | None = None  # training points per client
    rounds: int = 150
    lr: float = 0.01


def _lenet_for_cifar10(classes: int) -> nn.Module:
    return LeNet5(classes=classes)


def _lenet_for_cifar100(classes: int) -> nn.Module:
    return LeNet5(classes=classes, conv=(64, 128), linear=(256, 128), dropout=0.6)


def _mlp_for_28x28(classes: int) -> nn.Module:
    return MLP(28 * 28, (512, 256, 64), classes=classes)


def _mlp_for_digits(classes: int) -> nn.Module:
    return MLP(64, (64, 32), classes=classes)


RECIPES = {
    # Of few points per client (28), so it takes a slightly larger step to get anywhere.
    "digits": Recipe(
        _mlp_for_digits, clients=50, shards=3, epochs=1, body_epochs=1, rounds=30, lr=0.014
    ),
    "cifar10": Recipe(_lenet_for_cifar10, epochs=1, body_epochs=1),
    "cifar100": Recipe(_lenet_for_cifar100, shards=20),
    "emnist": Recipe(_mlp_for_28x28, classes=10),
    # Ten digits and not the letters a to j: of those there are too few for 100 x 150 points.
    "femnist": Recipe(_mlp_for_28x28, shards=3, classes=10, per_client=150),
    "mnist": Recipe(_mlp_for_28x28),
    "fashion-mnist": Recipe(_mlp_for_28x28),
}

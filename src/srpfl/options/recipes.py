"""What the experiments use on each data set: the defaults behind the options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Recipe:
    """Defaults for one data set (spec of the experiments)."""

    network: str  # a class of srpfl.models
    sizes: Mapping[str, Any] = field(default_factory=dict)  # of the model, beside the classes
    clients: int = 100
    shards: int = 5
    epochs: int = 5  # of methods with one phase
    head_epochs: int = 10  # τ_h
    body_epochs: int = 5  # τ_φ
    classes: int | None = None  # how many of the data set's first classes are used
    per_client: int | None = None  # training points per client
    rounds: int = 150
    lr: float = 0.01
    natural: bool = False  # its clients are those of the data
    text: bool = False  # samples are characters

    @property
    def model(self) -> Callable[..., nn.Module]:
        from srpfl import models

        kind: Callable[..., nn.Module] = getattr(models, self.network)
        return kind

    @property
    def tokens(self) -> int | None:
        """How many there are in texts."""
        from srpfl.data.characters import TOKENS

        return TOKENS if self.text else None


_MLP_FOR_28X28 = {"inputs": 28 * 28, "hidden": (512, 256, 64)}

RECIPES = {
    # Of few points per client (28), so it takes a slightly larger step to get anywhere.
    "digits": Recipe(
        "MLP",
        {"inputs": 64, "hidden": (64, 32)},
        clients=50,
        shards=3,
        epochs=1,
        body_epochs=1,
        rounds=30,
        lr=0.014,
    ),
    "cifar10": Recipe("LeNet5", epochs=1, body_epochs=1),
    "cifar100": Recipe(
        "LeNet5", {"conv": (64, 128), "linear": (256, 128), "dropout": 0.6}, shards=20
    ),
    "emnist": Recipe("MLP", _MLP_FOR_28X28, classes=10),
    # Ten digits and not the letters a to j: of those there are too few for 100 x 150 points.
    "femnist": Recipe("MLP", _MLP_FOR_28X28, shards=3, classes=10, per_client=150),
    "mnist": Recipe("MLP", _MLP_FOR_28X28),
    "fashion-mnist": Recipe("MLP", _MLP_FOR_28X28),
    # The clients of these are roles, schools and persons.
    "shakespeare": Recipe(
        "CharGRU",
        epochs=1,
        head_epochs=1,
        body_epochs=1,
        rounds=60,
        lr=1.0,
        natural=True,
        text=True,
    ),
    "school": Recipe(
        "MLP",
        {"inputs": 28, "hidden": (32,)},
        clients=139,
        epochs=1,
        head_epochs=10,
        body_epochs=1,
        rounds=60,
        lr=0.001,
        natural=True,
    ),
    "har": Recipe(
        "ConvNet1d",
        {"channels": 9},
        clients=21,
        shards=2,
        epochs=1,
        head_epochs=1,
        body_epochs=1,
        rounds=60,
        lr=0.03,
        natural=True,
    ),
}

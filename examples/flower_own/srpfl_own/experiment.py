"""What both sides must agree on (the model), and what a node alone knows (its files).

A node has a folder with one CSV file per user, USER.csv: a row per sample, a column per feature,
the class in the last column. Every user is a client with a head of its own; the first fifth of a
file is for testing.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from flwr.app import Context
from torch import Tensor, nn

import srpfl
from srpfl.data.base import Samples
from srpfl.flower import Experiment, OwnData, Patience

FEATURES, CLASSES = 4, 3


class Sensor(nn.Module):
    """Any module will do; `personal="head"` below names its last layer by what it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh())
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.body(x))
        return answer


def experiment(context: Context) -> Experiment:
    config = context.run_config
    return Experiment(
        name=str(config["experiment"]),
        model=Sensor,
        algorithm=srpfl.FedRep(head_epochs=5, body_epochs=1, personal="head"),
        participation=srpfl.Auto(),
        clients=int(config["clients"]),
        users=int(config["users"]),
        rounds=int(config["rounds"]),
        seed=int(config["seed"]),
        out=str(config["out"]),
        patience=Patience(budget=float(config["budget"])),
        judge="mean",  # every user alike, however many rows it has
    )


def own_data(context: Context) -> dict[str, OwnData]:
    """The users of this node, by name."""
    folder = Path(str(context.node_config["data-dir"]))
    return {path.stem: read(path) for path in sorted(folder.glob("*.csv"))}


def read(path: Path) -> OwnData:
    rows = np.loadtxt(path, delimiter=",", dtype=np.float32, ndmin=2)
    x, y = rows[:, :-1], rows[:, -1].astype(np.int64)
    cut = max(1, len(y) // 5)
    return OwnData(Samples(x[cut:], y[cut:]), Samples(x[:cut], y[:cut]), classes=CLASSES)

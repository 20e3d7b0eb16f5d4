"""Each client's data together with some of everyone's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from srpfl.core.randomness import stream
from srpfl.core.trees import gathered, take
from srpfl.data.base import Federated, IntArray, Samples, Transform
from srpfl.errors import ConfigError


@dataclass(frozen=True)
class Interpolated:
    """λD_i + (1 − λ)D: to a client's training samples come so many, drawn from those of all clients
    with the seed, that its own make up a share of λ. It is tested on its own. Where data may not
    leave their clients, D is what they have made public.

    >>> from srpfl.data import load
    >>> alone = load("digits", clients=10)
    >>> Interpolated(alone, share=0.5).size(3) == 2 * alone.size(3)
    True
    """

    data: Federated
    share: float = 0.5  # λ
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ConfigError(f"a client's own share is above 0 and up to 1, not {self.share}")

    @property
    def name(self) -> str:
        named: Any = self.data
        return f"{getattr(named, 'name', type(named).__name__)}, {self.share:g} of it its own"

    @property
    def clients(self) -> int:
        return self.data.clients

    @property
    def classes(self) -> int:
        return self.data.classes

    @property
    def transform(self) -> Transform:
        return self.data.transform

    @property
    def task(self) -> Any:
        return getattr(self.data, "task", "classification")

    def size(self, client: int) -> int:
        return self.data.size(client) + self._more(client)

    def train(self, client: int) -> Samples:
        draws = stream(self.seed, "interpolated", client)
        drawn = np.sort(draws.integers(self._ends[-1], size=self._more(client)))
        parts = [self.data.train(client)]
        owners = np.searchsorted(self._ends, drawn, side="right")
        for owner in np.unique(owners).tolist():
            first = int(self._ends[owner]) - self.data.size(owner)
            x, y = self.data.train(owner)
            mine = drawn[owners == owner] - first
            parts.append(Samples(take(x, mine), y[mine]))
        return Samples(*gathered(np.concatenate, [tuple(part) for part in parts]))

    def test(self, client: int) -> Samples:
        return self.data.test(client)

    def _more(self, client: int) -> int:
        return round(self.data.size(client) * (1 - self.share) / self.share)

    @cached_property
    def _ends(self) -> IntArray:
        """Where each client's samples end when all stand in a row."""
        sizes = [self.data.size(client) for client in range(self.clients)]
        return np.cumsum(np.array(sizes, dtype=np.int64))

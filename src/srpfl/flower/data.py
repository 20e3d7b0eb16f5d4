"""A client's own data, as the engines see it."""

from __future__ import annotations

from dataclasses import dataclass

from srpfl.data.base import Federated, Samples, Transform


@dataclass(frozen=True)
class OwnData:
    """The samples of the one client that a node is, under whatever number the server calls it."""

    own_train: Samples
    own_test: Samples
    classes: int
    transform: Transform = Transform(scale=False)

    @property
    def clients(self) -> int:
        return 1

    def size(self, client: int) -> int:
        return len(self.own_train.y)

    def train(self, client: int) -> Samples:
        return self.own_train

    def test(self, client: int) -> Samples:
        return self.own_test


def share_of(data: Federated, client: int) -> OwnData:
    """One client's share of a simulated federation, for trials on real nodes."""
    return OwnData(data.train(client), data.test(client), data.classes, data.transform)

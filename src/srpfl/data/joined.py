"""Several federations as one, so that clients of different runs can be trained as one cohort."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from srpfl.core.trees import form
from srpfl.data.base import Federated, Samples, Transform
from srpfl.errors import ConfigError


class Joined:
    """The clients of the first federation, then those of the second, and so on.

    >>> from srpfl.data import load
    >>> both = Joined([load("digits", clients=5), load("digits", clients=10)])
    >>> both.clients, both.number(1, 0)
    (15, 5)
    """

    def __init__(self, parts: Sequence[Federated]) -> None:
        self.parts = parts
        self._first = [0, *accumulate(part.clients for part in parts)]
        for part in parts[1:]:
            if _kind(part) != _kind(parts[0]):
                raise ConfigError(
                    "runs that are trained together need data of one kind: the same shape and "
                    "type of samples, as many classes, the same normalisation and augmentation"
                )

    @property
    def clients(self) -> int:
        return self._first[-1]

    @property
    def classes(self) -> int:
        return self.parts[0].classes

    @property
    def transform(self) -> Transform:
        return self.parts[0].transform

    def number(self, part: int, client: int) -> int:
        """The number here of a client of one of the parts."""
        return self._first[part] + client

    def size(self, client: int) -> int:
        part, own = self._own(client)
        return part.size(own)

    def train(self, client: int) -> Samples:
        part, own = self._own(client)
        return part.train(own)

    def test(self, client: int) -> Samples:
        part, own = self._own(client)
        return part.test(own)

    def _own(self, client: int) -> tuple[Federated, int]:
        if len(self.parts) == 1:  # which may be one client under whatever number
            return self.parts[0], client
        part = bisect_right(self._first, client) - 1
        return self.parts[part], client - self._first[part]


def joined(data: Federated) -> Joined:
    """The data as one of several federations."""
    return data if isinstance(data, Joined) else Joined([data])


def _kind(data: Federated) -> tuple[object, ...]:
    x, y = data.train(0)
    return data.classes, data.transform, form(x), y.shape[1:], y.dtype

"""Classes that live only on slow clients: the hardest case for not waiting for stragglers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from srpfl.core.randomness import stream
from srpfl.data.base import IntArray
from srpfl.data.partition import (
    Labels,
    Parts,
    check_holders,
    choose_classes,
    deal_classes,
    holding,
    present,
)
from srpfl.errors import ConfigError


@dataclass(frozen=True)
class SlowClasses:
    """Shards in which some classes are held by the clients in ``slow`` and by nobody else.

    A partition knows nothing of clocks, so the caller names the slow clients. There are
    ``count`` such classes (by default a fifth of all, at least one). A slow client holds as many
    of them as its places allow, then others; everybody holds ``classes_per_client`` classes, and a
    class is dealt out evenly among its holders. So slow clients may hold more points than others.

    >>> labels = np.repeat(np.arange(5), 12)
    >>> partition = SlowClasses(2, slow=(3,))
    >>> parts = partition.deal(Labels(labels, labels, classes=5), clients=4, seed=0)
    >>> fast = set(np.concatenate([labels[part] for part in parts.train[:3]]).tolist())
    >>> len(set(labels[parts.train[3]].tolist()) - fast)
    1
    """

    classes_per_client: int
    slow: Sequence[int]
    count: int | None = None

    def deal(self, labels: Labels, clients: int, seed: int) -> Parts:
        rng = stream(seed, "partition", 0)
        kinds = rng.permutation(present(labels))
        slow = np.unique(np.asarray(self.slow, dtype=np.int64))
        fast = np.setdiff1d(np.arange(clients), slow)
        count = max(1, len(kinds) // 5) if self.count is None else self.count
        self._check(clients, slow, len(kinds), count)
        rare, common = np.sort(kinds[:count]), np.sort(kinds[count:])
        of_rare = min(self.classes_per_client, count)
        chosen: list[IntArray] = [np.zeros(0, dtype=np.int64)] * clients
        for group, each, among in (
            (slow, of_rare, rare),
            (slow, self.classes_per_client - of_rare, common),
            (fast, self.classes_per_client, common),
        ):
            if each > 0:
                for client, more in zip(
                    group, choose_classes(len(group), each, among, rng), strict=True
                ):
                    chosen[client] = np.concatenate([chosen[client], more])
        shares = holding(chosen, labels.classes)
        check_holders(labels, shares)
        return Parts(
            deal_classes(labels.train, shares, stream(seed, "partition", 1)),
            deal_classes(labels.test, shares, stream(seed, "partition", 2)),
        )

    def _check(self, clients: int, slow: IntArray, classes: int, count: int) -> None:
        if len(slow) == 0 or len(slow) >= clients or slow[0] < 0 or slow[-1] >= clients:
            raise ConfigError(
                f"slow classes need some, but not all, of the clients 0 to {clients - 1} named as "
                f"slow, not {list(self.slow)}"
            )
        if not 0 < count <= len(slow) * self.classes_per_client:
            raise ConfigError(
                f"{len(slow)} slow clients with {self.classes_per_client} classes each cannot be "
                f"the only holders of {count} classes"
            )
        if self.classes_per_client > classes - count:
            raise ConfigError(
                f"with {count} of {classes} classes on slow clients only, the others cannot hold "
                f"{self.classes_per_client} classes each: ask for fewer"
            )

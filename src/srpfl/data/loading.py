"""From the name of a data set to clients that hold it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from srpfl.data.base import IntArray, Pooled
from srpfl.data.catalogue import KNOWN
from srpfl.data.dataset import Dataset
from srpfl.data.digits import digits
from srpfl.data.named import named
from srpfl.data.own import from_numpy, from_parquet
from srpfl.data.partition import Partition, Parts
from srpfl.data.shards import Shards
from srpfl.errors import ConfigError, DataError, unknown
from srpfl.randomness import stream

THREE_CLASSES_EACH = Shards(3)
OWN = {"parquet": from_parquet, "numpy": from_numpy}


def load(
    name: str,
    *,
    clients: int = 50,
    partition: Partition = THREE_CLASSES_EACH,
    seed: int = 0,
    data_dir: str | Path | None = None,
    classes: Sequence[int] | int | None = None,
    per_client: int | None = None,
    augment: bool = True,
) -> Pooled:
    """Load a data set and deal it out to clients.

    Names are ``digits`` (always there), ``cifar10``, ``cifar100``, ``emnist``, ``femnist``,
    ``mnist``, ``fashion-mnist`` (from ``data_dir``, or ``SRPFL_DATA``, or the Hub), and
    ``parquet:PATH`` and ``numpy:PATH`` for data of your own.
    ``classes`` keeps some classes only (a number: the first ones) and labels them from 0 on;
    ``per_client`` is the most training points that a client keeps, in its own mix of classes.

    >>> data = load("digits", clients=10, partition=Shards(2), seed=1)
    >>> data.clients, data.classes, data.train(0).x.shape[1:]
    (10, 10, (64,))
    """
    if clients < 1:
        raise ConfigError(f"there must be at least one client, not {clients}")
    dataset = _read(name, data_dir, augment)
    if classes is not None:
        dataset = dataset.only(classes)
    parts = partition.deal(dataset.labels, clients, seed)
    if per_client is not None:
        parts = _capped(parts, dataset.train.y, per_client, seed)
    _check(parts)
    return Pooled(
        name=dataset.name,
        train_pool=dataset.train,
        test_pool=dataset.test,
        train_parts=parts.train,
        test_parts=parts.test,
        classes=dataset.classes,
        transform=dataset.transform,
    )


def _read(name: str, data_dir: str | Path | None, augment: bool) -> Dataset:
    if name == "digits":
        return digits()
    if name in KNOWN:
        return named(KNOWN[name], data_dir, augment=augment)
    kind, colon, path = name.partition(":")
    if colon and kind in OWN:
        return OWN[kind](Path(path).expanduser())
    raise unknown("data set", name, ["digits", *KNOWN, *(f"{kind}:PATH" for kind in OWN)])


def _capped(parts: Parts, labels: IntArray, most: int, seed: int) -> Parts:
    if most < 1:
        raise ConfigError(f"a client must keep at least one point, not {most}")

    def kept(part: IntArray, client: int) -> IntArray:
        rows = stream(seed, "partition", 3, client).permutation(part)
        # A point's place within its class, as a fraction: the lowest ones are the same mix of
        # classes, and the first of every class comes before the second of any.
        place = np.zeros(len(rows))
        for kind in np.unique(labels[rows]):
            same = np.flatnonzero(labels[rows] == kind)
            place[same] = np.arange(len(same)) / len(same)
        return np.sort(rows[np.argsort(place, kind="stable")[:most]])

    return Parts([kept(part, client) for client, part in enumerate(parts.train)], parts.test)


def _check(parts: Parts) -> None:
    for what, rows in (("training", parts.train), ("test", parts.test)):
        for client, part in enumerate(rows):
            if len(part) == 0:
                raise DataError(
                    f"client {client} of {len(rows)} has no {what} points: take fewer clients or "
                    "a partition that is less uneven"
                )

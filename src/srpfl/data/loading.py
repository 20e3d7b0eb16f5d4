"""From the name of a data set to clients that hold it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from srpfl.core.randomness import stream
from srpfl.data.base import IntArray, Pooled
from srpfl.data.catalogue import KNOWN
from srpfl.data.dataset import Dataset
from srpfl.data.digits import digits
from srpfl.data.har import HAR
from srpfl.data.named import named
from srpfl.data.natural import Natural, owners
from srpfl.data.own import from_numpy, from_parquet
from srpfl.data.partition import Partition, Parts
from srpfl.data.school import School
from srpfl.data.shakespeare import Shakespeare
from srpfl.data.shards import Shards
from srpfl.errors import ConfigError, DataError, enough_memory, shown, unknown, whole

CLIENTS = 50
THREE_CLASSES_EACH = Shards(3)
OWN = {"parquet": from_parquet, "numpy": from_numpy}
NATURAL: dict[str, type[Shakespeare | HAR | School]] = {
    "shakespeare": Shakespeare,
    "har": HAR,
    "school": School,
}


def load(
    name: str,
    *,
    clients: int | None = None,
    partition: Partition | None = None,
    seed: int = 0,
    data_dir: str | Path | None = None,
    classes: Sequence[int] | int | None = None,
    per_client: int | None = None,
    augment: bool = True,
    **options: Any,
) -> Pooled:
    """Load a data set and deal it out to clients.

    Names are ``digits`` (always there), ``cifar10``, ``cifar100``, ``emnist``, ``femnist``,
    ``mnist``, ``fashion-mnist`` (from ``data_dir``, or ``SRPFL_DATA``, or the Hub),
    ``shakespeare``, ``har`` and ``school`` (from ``data_dir`` or ``SRPFL_DATA``), and
    ``parquet:PATH`` and ``numpy:PATH`` for data of your own.

    Images have 50 clients with three classes each unless you say otherwise. The clients of
    shakespeare, har and school are those of the data (:class:`Natural`), all of them or as many as
    you say. ``classes`` keeps some classes only (a number: the first ones) and labels them from 0
    on; ``per_client`` is the most training points that a client keeps, in its own mix of classes.
    Further options are a data set's own: ``length`` and ``least`` of shakespeare, ``split``
    ("blocked" or "random") and ``inputs`` ("windows" or "features") of har.

    >>> data = load("digits", clients=10, partition=Shards(2), seed=1)
    >>> data.clients, data.classes, data.train(0).x.shape[1:]
    (10, 10, (64,))
    """
    clients, per_client, seed = _checked(name, clients, per_client, seed, partition, data_dir)
    with enough_memory(f"the data set {name}"):
        try:
            dataset = _read(name, data_dir, augment, options)
        except OSError as error:  # such as a path that is too long
            reason = error.strerror or error
            raise DataError(f"cannot read the data set {shown(name)}: {reason}") from error
        if classes is not None:
            dataset = dataset.only(_classes(classes))
        return _dealt(dataset, clients, partition, per_client, seed)


def _checked(
    name: Any, clients: Any, per_client: Any, seed: Any, partition: Any, data_dir: Any
) -> tuple[int | None, int | None, int]:
    """The numbers as whole ones; everything else of its type."""
    if not isinstance(name, str) or "\0" in name:
        raise ConfigError(f"the name of a data set must be a text, not {shown(name)}")
    if clients is not None and (clients := whole("clients", clients)) < 1:
        raise ConfigError(f"there must be at least one client, not {shown(clients)}")
    if per_client is not None:
        per_client = whole("per_client", per_client)
    if (seed := whole("seed", seed)) < 0:
        raise ConfigError(f"the seed must be zero or a positive number, not {shown(seed)}")
    if partition is not None and (isinstance(partition, type) or not hasattr(partition, "deal")):
        raise ConfigError(
            f"partition must be an object such as srpfl.data.Shards(3), not {shown(partition)}"
        )
    if data_dir is not None and not isinstance(data_dir, (str, Path)):
        raise ConfigError(f"data_dir must be the path of a folder, not {shown(data_dir)}")
    return clients, per_client, seed


def _classes(classes: Any) -> Sequence[int] | int:
    if isinstance(classes, Sequence | np.ndarray) and not isinstance(classes, str):
        return [whole("a class", kind) for kind in classes]
    return whole("classes", classes)


def _dealt(
    dataset: Dataset,
    clients: int | None,
    partition: Partition | None,
    per_client: int | None,
    seed: int,
) -> Pooled:
    if partition is None:
        partition = Natural() if dataset.natural else THREE_CLASSES_EACH
    if not dataset.classes and not isinstance(partition, Natural):
        raise ConfigError(
            f"{dataset.name} has no classes to deal out: its clients are its {dataset.who}, so "
            "leave the partition out or take the natural one"
        )
    if clients is None:
        clients = len(owners(dataset.labels)) if dataset.natural else CLIENTS
    # A few too many are named by the partition; with far too many it would never come to an end.
    if clients > 10 * len(dataset.train.y) and not isinstance(partition, Natural):
        raise DataError(
            f"{shown(clients)} clients need a training and a test point each, and {dataset.name} "
            f"has {len(dataset.train.y)} and {len(dataset.test.y)}: take fewer clients"
        )
    parts = partition.deal(dataset.labels, clients, seed)
    if per_client is not None:
        kinds = dataset.train.y if dataset.classes else np.zeros(len(dataset.train.y), np.int64)
        parts = _capped(parts, kinds, per_client, seed)
    _check(parts)
    return Pooled(
        name=dataset.name,
        train_pool=dataset.train,
        test_pool=dataset.test,
        train_parts=parts.train,
        test_parts=parts.test,
        classes=dataset.classes,
        transform=dataset.transform,
        task=dataset.task,
    )


def _read(
    name: str, data_dir: str | Path | None, augment: bool, options: dict[str, Any]
) -> Dataset:
    kind, colon, path = name.partition(":")
    if name in NATURAL:
        return _natural(name, data_dir, options)
    if options:
        raise ConfigError(f"the data set {name} has no option '{next(iter(options))}'")
    if name == "digits":
        return digits()
    if name in KNOWN:
        return named(KNOWN[name], data_dir, augment=augment)
    if colon and kind in OWN:
        return OWN[kind](Path(path).expanduser())
    raise unknown("data set", name, ["digits", *KNOWN, *NATURAL, *(f"{kind}:PATH" for kind in OWN)])


def _natural(name: str, data_dir: str | Path | None, options: dict[str, Any]) -> Dataset:
    kind = NATURAL[name]
    known = [field.name for field in dataclasses.fields(kind)]
    for option in options:
        if option not in known:
            hint = f"it has {' and '.join(known)}" if known else "it has none"
            raise ConfigError(f"the data set {name} has no option '{option}': {hint}")
    return kind(**options).read(data_dir)


def _capped(parts: Parts, labels: IntArray, most: int, seed: int) -> Parts:
    if most < 1:
        raise ConfigError(f"a client must keep at least one point, not {shown(most)}")

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

"""What a partition is, and how the points of classes are dealt out to clients."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from srpfl.data.base import IntArray
from srpfl.errors import ConfigError, DataError

FloatArray = NDArray[np.float64]
StrArray = NDArray[np.str_]

log = logging.getLogger("srpfl")


@dataclass(frozen=True)
class Labels:
    """What a partition may look at: the class of every point and, where known, whose it is."""

    train: IntArray
    test: IntArray
    classes: int
    train_writers: StrArray | None = None
    test_writers: StrArray | None = None
    who: str = "writers"  # what the owners are called in a message


@dataclass(frozen=True)
class Parts:
    """The rows of every client in the training and in the test pool."""

    train: list[IntArray]
    test: list[IntArray]


class Partition(Protocol):
    """Decides who holds which points; the same seed decides alike, whatever else is drawn."""

    def deal(self, labels: Labels, clients: int, seed: int) -> Parts: ...


def deal_classes(
    labels: IntArray, shares: FloatArray, rng: np.random.Generator, *, least: int = 0
) -> list[IntArray]:
    """Deal every class out in proportion to a column of ``shares`` (clients x classes).

    Nothing is dropped of a class that somebody holds. Where points cannot be divided, those left
    over go first to the clients that rounding has cost most so far, so sizes stay even.
    """
    hands: list[list[IntArray]] = [[] for _ in shares]
    ahead = np.zeros(len(shares))  # what rounding has given so far, or cost where negative
    for kind in range(shares.shape[1]):
        holders = np.flatnonzero(shares[:, kind])
        if len(holders) == 0:
            continue
        rows = rng.permutation(np.flatnonzero(labels == kind))
        holders = holders[np.lexsort((rng.random(len(holders)), ahead[holders].round(6)))]
        claims = shares[holders, kind]
        counts = apportion(len(rows), claims, least=least)
        for client, piece in zip(holders, cut(rows, counts), strict=True):
            hands[client].append(piece)
        ahead[holders] += counts - len(rows) * (claims / claims.sum())
    empty = np.zeros(0, dtype=np.int64)
    return [np.sort(np.concatenate([empty, *hand])) for hand in hands]


def apportion(total: int, shares: FloatArray, *, least: int = 0) -> IntArray:
    """Whole numbers in proportion to ``shares`` that add up to ``total`` (largest remainders).

    Everybody gets at least ``least`` where the total allows it. Equal claims are served in order.

    >>> apportion(11, np.array([1.0, 1.0, 2.0])).tolist()
    [3, 3, 5]
    """
    floor = min(least, total // len(shares))
    spread = total - floor * len(shares)
    ideal = spread * (shares / shares.sum())
    counts: IntArray = np.floor(ideal).astype(np.int64)
    behind = np.argsort(counts - ideal, kind="stable")
    counts[behind[: spread - int(counts.sum())]] += 1
    counts += floor
    return counts


def cut(rows: IntArray, counts: IntArray) -> list[IntArray]:
    """The rows in pieces of the given sizes."""
    return np.split(rows, np.cumsum(counts)[:-1])


def choose_classes(
    clients: int, each: int, kinds: IntArray, rng: np.random.Generator
) -> list[IntArray]:
    """Give every client ``each`` different classes such that every class has as many clients as
    any other, or one less.

    Client by client, a class is drawn in proportion to the places that it has left; one that has
    as many places left as there are clients must be taken. So the draw never runs into a dead end.
    """
    if each < 1:
        raise ConfigError(f"a client needs at least one class, not {each}")
    if each > len(kinds):
        raise ConfigError(
            f"{each} classes per client are more than the {len(kinds)} classes that there are"
        )
    places = np.full(len(kinds), clients * each // len(kinds))
    places[rng.permutation(len(kinds))[: clients * each % len(kinds)]] += 1
    chosen = []
    for left in range(clients, 0, -1):
        must = places == left
        may = np.where(must, 0, places)
        taken = np.flatnonzero(must)
        if len(taken) < each:
            free = rng.choice(len(kinds), each - len(taken), replace=False, p=may / may.sum())
            taken = np.concatenate([taken, free])
        places[taken] -= 1
        chosen.append(np.sort(kinds[taken]))
    return chosen


def holding(chosen: list[IntArray], classes: int) -> FloatArray:
    """Shares of 1 for the classes that a client holds and of 0 for all others."""
    shares = np.zeros((len(chosen), classes))
    for client, kinds in enumerate(chosen):
        shares[client, kinds] = 1
    return shares


def present(labels: Labels) -> IntArray:
    """The classes that have training points."""
    return np.unique(labels.train)


def check_holders(labels: Labels, shares: FloatArray) -> None:
    """Refuse when a class cannot reach all its holders; say so when a class has none."""
    points = np.bincount(labels.train, minlength=labels.classes)
    holders = (shares > 0).sum(axis=0)
    for kind in np.flatnonzero(points < holders):
        raise DataError(
            f"class {kind} has {points[kind]} training points for the {holders[kind]} clients "
            "that should hold it: take fewer clients or fewer classes per client"
        )
    unheld = np.flatnonzero((points > 0) & (holders == 0))
    if len(unheld):
        log.warning(
            "the clients hold %d of the %d classes, and the points of the other %d are left out: "
            "more clients or more classes per client would use them",
            np.count_nonzero(holders),
            np.count_nonzero(points),
            len(unheld),
        )

"""Whether samples are such that a model could learn from them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from srpfl.core.trees import count, gathered, leaves, mapped, take
from srpfl.data.base import Federated, Samples, Transform
from srpfl.data.limits import check_classes
from srpfl.errors import DataError, shown, whole
from srpfl.task import Task

LOOKED_AT = 1000  # clients up to which every sample is looked at before the first round
COUNTED = 100_000  # beyond this a population is not asked for its sizes: that would take long
SAMPLED = 32  # clients whose bytes are in the fingerprint of a larger population
TAKEN = 1 << 16  # bytes of an array that are in the fingerprint, about
CELLS = 2_000_000  # clients x classes up to which the counts are kept
KINDS = {"f": "numbers with a point", "i": "whole numbers", "b": "truth values"}

Part = Literal["train", "test"]


class Checked:
    """Data whose every client is checked once, when it is first used."""

    def __init__(self, data: Federated, task: Task) -> None:
        self.data, self.task = data, task
        self.clients = whole("the number of clients of the data", data.clients)
        self.classes = whole("the number of classes of the data", data.classes)
        if self.clients < 1:
            raise DataError("there are no clients: give the data to at least one")
        if self.classes < 0:
            raise DataError(f"the number of classes must be zero or more, not {self.classes}")
        check_classes(self.classes, "the data")
        # A byte for each client, which costs memory only where it is written to.
        self._seen: dict[Part, NDArray[np.bool_]] = {
            "train": np.zeros(self.clients, dtype=np.bool_),
            "test": np.zeros(self.clients, dtype=np.bool_),
        }
        # The first client of each part, and the form of its samples.
        self._first: dict[Part, tuple[int, Any]] = {}
        # Some client, and the kinds of numbers of its inputs, array by array.
        self._kinds: tuple[int, list[str]] | None = None
        # Whole numbers of inputs, and of labels that are no classes: by array and whether it is the
        # largest, the number and its sample.
        self._extremes: dict[tuple[int, bool], tuple[int, Samples]] = {}

    @property
    def transform(self) -> Transform:
        return self.data.transform

    def size(self, client: int) -> int:
        size = self.data.size(client)
        if type(size) is not int:
            size = whole(f"the size of client {client}", size)
        if size <= 0:
            raise DataError(
                f"client {client} has no training data: use fewer clients or another partition"
            )
        return size

    def train(self, client: int) -> Samples:
        return self._checked("train", client, self.data.train(client))

    def test(self, client: int) -> Samples:
        return self._checked("test", client, self.data.test(client))

    def look(self, part: Part, clients: Iterable[int]) -> None:
        """Check these clients, for an engine that gets their samples another way."""
        for client in clients:
            if not self._seen[part][client]:
                _ = self.train(client) if part == "train" else self.test(client)

    def _checked(self, part: Part, client: int, samples: Samples) -> Samples:
        if not self._seen[part][client]:
            check_samples(samples, client, self.classes, self.task)
            if part == "train" and len(samples[1]) != self.size(client):
                raise DataError(
                    f"client {client} has {len(samples[1])} training samples, but its size is said "
                    f"to be {self.size(client)}"
                )
            if len(samples[1]):
                other, expected = self._first.setdefault(part, (client, shapes(samples)))
                check_form(shapes(samples), client, expected, other)
                self._check_kinds(samples, client, part)
                self._note_extremes(samples)
            self._seen[part][client] = True
        if all(map(_fine, leaves(samples))):
            return samples
        return Samples(*mapped(_laid_out, tuple(samples)))

    def _check_kinds(self, samples: Samples, client: int, part: Part) -> None:
        """Refuse inputs of another kind than another client's: whole numbers among numbers with a
        point are something else to a model, and where both are put together one is changed."""
        arrays = leaves(samples[0])
        found = ["f" if self.transform.rescales(array) else array.dtype.kind for array in arrays]
        found = ["i" if kind == "u" else kind for kind in found]
        if self._kinds is None:
            self._kinds = client, found
        other, expected = self._kinds
        for array, here, there in zip(arrays, found, expected, strict=True):
            if here != there:
                which = "test inputs" if part == "test" else "inputs"
                raise DataError(
                    f"client {client} has {which} of type {array.dtype}, but client {other} has "
                    f"{KINDS[there]}: give all samples numbers of one kind"
                )

    def _note_extremes(self, samples: Samples) -> None:
        arrays = [*leaves(samples[0]), *([] if self.classes else [samples[1]])]
        for place, array in enumerate(arrays):
            if array.dtype.kind not in "iu" or not array.size or self.transform.rescales(array):
                continue
            each = array.reshape(len(array), -1)
            for largest, found in ((False, each.argmin()), (True, each.argmax())):
                row, column = divmod(int(found), each.shape[1])
                value = int(each[row, column])
                known = self._extremes.get((place, largest))
                if known is None or (value > known[0] if largest else value < known[0]):
                    sample = take(tuple(samples), [row])  # a copy
                    self._extremes[place, largest] = value, Samples(*sample)

    def extremes(self) -> Samples | None:
        """The samples with the smallest and the largest whole numbers of those seen so far, such as
        tokens: what a model can look up for these, it can for all."""
        rows = [tuple(sample) for _, sample in self._extremes.values()]
        return Samples(*gathered(np.concatenate, rows)) if rows else None


def _laid_out(array: Any) -> Any:
    """The array as PyTorch takes it: in this machine's order of bytes, and forwards."""
    return array if _fine(array) else array.astype(array.dtype.newbyteorder("="))


def _fine(array: Any) -> bool:
    return bool(array.dtype.isnative and min(array.strides, default=0) >= 0)


@dataclass(frozen=True)
class Looked:
    """What is known of data before the first round."""

    fingerprint: str  # other data have another one
    counts: list[list[int]] | None  # training points by client and class, where that is little
    tested: bool | None  # whether anybody has test samples; None: not everybody was asked


def check_data(data: Checked) -> Looked:
    """Refuse data that no run could be played on. Of large populations only some are looked at; the
    others are checked when they are used."""
    clients, classes = data.clients, data.classes
    everyone = clients <= LOOKED_AT
    crc = zlib.crc32(f"{clients} {classes}".encode())
    if clients <= COUNTED:
        sizes = np.array([data.size(client) for client in range(clients)], dtype="<i8")
        crc = zlib.crc32(sizes.tobytes(), crc)
    counted = everyone and 0 < clients * classes <= CELLS
    counts: list[list[int]] = []
    tested = False
    for client in range(clients) if everyone else _spread(clients):
        train, test = data.train(client), data.test(client)
        tested = tested or len(test[1]) > 0
        for array in (*leaves(train[0]), train[1], *leaves(test[0]), test[1]):
            crc = _crc(array, crc)
        counted = counted and _are_classes(train[1], classes)
        if counted:
            counts.append(np.bincount(train[1], minlength=classes).tolist())
    return Looked(f"{crc:08x}", counts if counted else None, tested if everyone else None)


def _are_classes(y: NDArray[Any], classes: int) -> bool:
    """Whether labels can be counted by class; another task's are something else."""
    return y.ndim == 1 and y.dtype.kind in "iu" and bool(y.min() >= 0 and y.max() < classes)


def _spread(clients: int) -> list[int]:
    return sorted({place * (clients - 1) // (SAMPLED - 1) for place in range(SAMPLED)})


def _crc(array: Any, crc: int) -> int:
    """Of an array's form, and of so many of its samples, from the first to the last."""
    crc = zlib.crc32(f"{array.shape} {array.dtype.str}".encode(), crc)
    step = -(-array.nbytes // TAKEN) or 1
    return zlib.crc32(array[::step].tobytes(), crc)


def is_missing(value: Any) -> bool:
    """Whether a value stands for none, as Python, NumPy and pandas write it."""
    strange = type(value).__name__ in ("NAType", "NaTType")  # which cannot be compared
    return value is None or strange or bool(value != value)  # NaN is not equal to itself


def shapes(samples: Samples) -> Any:
    """The shapes of one sample: of its input, and of its label."""
    return mapped(lambda array: array.shape[1:], tuple(samples))


def check_form(found: Any, client: int, expected: Any, other: int) -> None:
    """Refuse a client whose samples have another form than another's: engines put the samples of
    several clients together."""
    for what, here, there in zip(("inputs", "labels"), found, expected, strict=True):
        if here != there:
            raise DataError(
                f"client {client}'s {what} have the shape {here}, but client {other}'s have "
                f"{there}: give all clients samples of one shape, for example by padding them"
            )


def check_samples(samples: Samples, client: int, classes: int, task: Task) -> None:
    """Refuse what no model could learn from."""
    if not isinstance(samples, tuple) or len(samples) != 2:
        raise DataError(
            f"client {client}'s samples must be srpfl.data.Samples(x, y), not {shown(samples)}"
        )
    x, y = samples
    arrays = [*leaves(x), y]
    fine = len(arrays) > 1 and all(isinstance(a, np.ndarray) and a.ndim > 0 for a in arrays)
    if not fine or count(x) != len(y):
        raise DataError(f"client {client}'s samples must be NumPy arrays, as many inputs as labels")
    if any(map(np.ma.is_masked, arrays)):
        raise DataError(f"client {client} has masked values: fill them in, or leave their rows out")
    if y.dtype.kind not in "iufb" or y.itemsize > 8:
        raise DataError(f"client {client}'s labels must be real numbers, not {y.dtype}")
    wrong = task.check_labels(y, classes)
    if wrong is not None:
        raise DataError(f"client {client}'s labels {wrong}")
    for array in arrays[:-1]:
        if array.dtype.kind not in "iufb" or array.itemsize > 8:
            raise DataError(f"client {client}'s inputs must be real numbers, not {array.dtype}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DataError(f"client {client} has inputs that are not finite numbers")

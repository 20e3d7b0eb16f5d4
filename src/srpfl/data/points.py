"""What every reader of files gives back, and what it must check."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from srpfl.data.base import IntArray
from srpfl.data.limits import check_classes
from srpfl.data.partition import StrArray
from srpfl.errors import DataError

Images = NDArray[np.uint8]  # samples x channels x height x width


class Points(NamedTuple):
    """The points of one split as they were read."""

    x: NDArray[np.generic]
    y: IntArray
    writers: StrArray | None = None


def checked_labels(
    labels: NDArray[Any], path: Path | str, name: str, classes: int | None
) -> IntArray:
    """The labels as integers, if all of them lie in 0 .. classes - 1."""
    bad = (labels < 0) | (labels >= classes) if classes is not None else labels < 0
    if bad.any():
        row = int(np.argmax(bad))
        last = "" if classes is None else f" to {classes - 1}"
        raise DataError(
            f"row {row} of {path} has the label {labels[row]}, but the labels of {name} are 0{last}"
            + (" and up" if classes is None else "")
        )
    if classes is None and len(labels):
        check_classes(int(labels.max()) + 1, str(path))
    return labels.astype(np.int64)


def join(pieces: list[Points]) -> Points:
    """The points of several files as one."""
    if len(pieces) == 1:
        return pieces[0]
    shapes = {piece.x.shape[1:] for piece in pieces}
    if len(shapes) > 1:
        raise DataError(f"the files hold images of different shapes: {sorted(shapes)}")
    writers = [piece.writers for piece in pieces if piece.writers is not None]
    return Points(
        np.concatenate([piece.x for piece in pieces]),
        np.concatenate([piece.y for piece in pieces]),
        np.concatenate(writers) if writers else None,
    )

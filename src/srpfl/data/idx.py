"""The MNIST family's IDX files, compressed or not."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from srpfl.data.limits import check_bytes
from srpfl.data.points import Points, checked_labels
from srpfl.errors import DataError

UBYTE = 0x08


def read(
    images: Path, labels: Path, name: str, *, classes: int, transposed: bool = False
) -> Points:
    """One split. EMNIST's official files hold every image transposed; here it comes upright."""
    x, y = _array(images, dimensions=3), _array(labels, dimensions=1)
    if len(x) != len(y):
        raise DataError(f"{images} holds {len(x)} images, but {labels} holds {len(y)} labels")
    if transposed:
        x = x.swapaxes(1, 2)
    return Points(np.ascontiguousarray(x[:, None]), checked_labels(y, labels, name, classes))


def _array(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """What the head promises is checked before it is read, and no more than that is unpacked."""
    start = 4 + 4 * dimensions
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            head = file.read(start)
            if len(head) < start or head[:4] != bytes([0, 0, UBYTE, dimensions]):
                raise DataError(
                    f"{path} is not an IDX file of bytes with {dimensions} dimension(s)"
                )
            shape = struct.unpack(f">{dimensions}I", head[4:])
            promised = math.prod(shape)
            check_bytes(promised, path)
            raw = file.read(promised + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if len(raw) != promised:
        held = "more" if len(raw) > promised else f"{len(raw)}"
        raise DataError(
            f"{path} promises {promised} bytes of data and holds {held}: it is cut short or damaged"
        )
    return np.frombuffer(raw, np.uint8).reshape(shape)

"""The MNIST family's IDX files, compressed or not."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    start = 4 + 4 * dimensions
    if len(raw) < start or raw[:4] != bytes([0, 0, UBYTE, dimensions]):
        raise DataError(f"{path} is not an IDX file of bytes with {dimensions} dimension(s)")
    shape = struct.unpack(f">{dimensions}I", raw[4:start])
    if len(raw) - start != math.prod(shape):
        raise DataError(
            f"{path} promises {math.prod(shape)} bytes of data and holds {len(raw) - start}: "
            "it is cut short or damaged"
        )
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)

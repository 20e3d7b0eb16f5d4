"""CIFAR's binary version: records of one or two label bytes and 3 x 32 x 32 bytes of image."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from srpfl.data.points import Points, checked_labels
from srpfl.errors import DataError

PIXELS = 3 * 32 * 32


def read(path: Path, name: str, *, classes: int) -> Points:
    """One file. CIFAR-100's records start with the coarse label; the fine one is the last."""
    before = 2 if classes == 100 else 1
    try:
        raw = np.fromfile(path, np.uint8)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if len(raw) == 0 or len(raw) % (before + PIXELS):
        raise DataError(
            f"{path} is not a whole number of {name} records ({before + PIXELS} bytes each): "
            "it is cut short or something else"
        )
    records = raw.reshape(-1, before + PIXELS)
    y = checked_labels(records[:, before - 1], path, name, classes)
    return Points(np.ascontiguousarray(records[:, before:]).reshape(-1, 3, 32, 32), y)

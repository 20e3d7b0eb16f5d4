"""LEAF's JSON: images as lists of numbers in [0, 1], by writer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from srpfl.data.points import Images, Points, checked_labels, join
from srpfl.errors import DataError

SIDE = 28


def read(path: Path, name: str, *, classes: int) -> Points:
    """All writers of one file."""
    try:
        people = json.loads(path.read_bytes())["user_data"]
        pieces = [
            _of_writer(person, own["x"], own["y"], path, name, classes)
            for person, own in people.items()
            if own["y"]
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} cannot be read as LEAF's JSON (an object 'user_data' with 'x' and 'y' per "
            f"writer): {type(error).__name__}: {error}"
        ) from error
    if not pieces:
        raise DataError(f"{path} holds no samples")
    return join(pieces)


def _of_writer(
    person: str, x: list[list[float]], y: list[int], path: Path, name: str, classes: int
) -> Points:
    where = f"writer {person} in {path}"
    if len(x) != len(y):
        raise DataError(f"{where} has {len(x)} images but {len(y)} labels")
    labels = checked_labels(np.array(y), where, name, classes)
    return Points(_images(x, where), labels, np.full(len(y), person))


def _images(rows: list[list[float]], where: str) -> Images:
    values = np.array(rows, dtype=np.float64)
    if values.shape != (len(rows), SIDE * SIDE) or not ((values >= 0) & (values <= 1)).all():
        raise DataError(f"{where} has an image that is not {SIDE * SIDE} numbers from 0 to 1")
    # LEAF divided bytes by 255, so this gives those bytes back exactly.
    return np.rint(values * 255).astype(np.uint8).reshape(-1, 1, SIDE, SIDE)

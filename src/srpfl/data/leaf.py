"""LEAF's JSON: images as lists of numbers in [0, 1], by writer."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from srpfl.data.limits import check_name
from srpfl.data.points import Images, Points, checked_labels, join
from srpfl.errors import DataError, shown

SIDE = 28


def read(path: Path, name: str, *, classes: int) -> Points:
    """All writers of one file."""
    try:
        people = json.loads(path.read_bytes(), object_pairs_hook=_without_repeats)["user_data"]
        pieces = [
            _of_writer(person, own["x"], own["y"], path, name, classes)
            for person, own in people.items()
            if own["y"]
        ]
    except (
        *(OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError),
        RecursionError,  # brackets in brackets without end
    ) as error:
        raise DataError(
            f"{path} cannot be read as LEAF's JSON (an object 'user_data' with 'x' and 'y' per "
            f"writer): {type(error).__name__}: {str(error)[:200]}"
        ) from error
    if not pieces:
        raise DataError(f"{path} holds no samples")
    return join(pieces)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON keeps the last of several; the samples of the others would be lost without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{shown(twice)} is there more than once")
    return found


def _of_writer(
    person: str, x: list[list[float]], y: list[int], path: Path, name: str, classes: int
) -> Points:
    where = f"writer {check_name(person, str(path))} in {path}"
    if len(x) != len(y):
        raise DataError(f"{where} has {len(x)} images but {len(y)} labels")
    given = np.array(y)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        wrong = next((label for label in y if type(label) is not int), y)
        raise DataError(f"{where} has the label {shown(wrong)}: labels must be whole numbers")
    labels = checked_labels(given, where, name, classes)
    return Points(_images(x, where), labels, np.full(len(y), person))


def _images(rows: list[list[float]], where: str) -> Images:
    values = np.array(rows, dtype=np.float64)
    if values.shape != (len(rows), SIDE * SIDE) or not ((values >= 0) & (values <= 1)).all():
        raise DataError(f"{where} has an image that is not {SIDE * SIDE} numbers from 0 to 1")
    # LEAF divided bytes by 255, so this gives those bytes back exactly.
    return np.rint(values * 255).astype(np.uint8).reshape(-1, 1, SIDE, SIDE)

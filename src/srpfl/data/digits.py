"""Scikit-learn's handwritten digits: real, small, and there wherever the library is installed."""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from srpfl.data.base import Samples, Transform
from srpfl.data.dataset import Dataset, held_out

NORMALISED = Transform(mean=(0.305,), std=(0.376,))  # of all pixels


def digits() -> Dataset:
    """1797 images of 8 x 8, as vectors of 64 numbers in [0, 1]; a fifth of each class is for tests.

    >>> digits().train.x.shape, digits().test.x.shape
    ((1438, 64), (359, 64))
    """
    table = _table()
    x, y = (table[:, :64] / 16).astype(np.float32), table[:, 64].astype(np.int64)
    train, test = held_out(y, 0.2)
    return Dataset(
        "digits",
        Samples(x[train], y[train]),
        Samples(x[test], y[test]),
        classes=10,
        transform=NORMALISED,
    )


def _table() -> NDArray[np.float64]:
    """A row for each image, its label last. The library itself, with all that it imports, takes as
    long to load as a short run to play: its file will do, wherever it is as we know it."""
    found = importlib.util.find_spec("sklearn")
    for place in (found and found.submodule_search_locations) or ():
        file = Path(place) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            with gzip.open(file, "rt") as lines:
                return np.loadtxt(lines, delimiter=",")
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return np.column_stack([images, labels])

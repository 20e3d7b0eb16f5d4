"""Scikit-learn's handwritten digits: real, small, and there wherever the library is installed."""

from __future__ import annotations

import numpy as np

from srpfl.data.base import Samples, Transform
from srpfl.data.dataset import Dataset, held_out

NORMALISED = Transform(mean=(0.305,), std=(0.376,))  # of all pixels


def digits() -> Dataset:
    """1797 images of 8 x 8, as vectors of 64 numbers in [0, 1]; a fifth of each class is for tests.

    >>> digits().train.x.shape, digits().test.x.shape
    ((1438, 64), (359, 64))
    """
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x = (images / 16).astype(np.float32)
    y = labels.astype(np.int64)
    train, test = held_out(y, 0.2)
    return Dataset(
        "digits",
        Samples(x[train], y[train]),
        Samples(x[test], y[test]),
        classes=10,
        transform=NORMALISED,
    )

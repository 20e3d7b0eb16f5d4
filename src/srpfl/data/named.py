"""The data sets of the catalogue: found in a folder or downloaded, decoded once, then cached."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from srpfl.data import layouts
from srpfl.data.base import Samples, Transform
from srpfl.data.cache import Arrays, cached
from srpfl.data.catalogue import Known
from srpfl.data.dataset import Dataset, held_out
from srpfl.data.partition import StrArray
from srpfl.data.points import Points
from srpfl.errors import DataError


def named(known: Known, data_dir: str | Path | None, *, augment: bool = True) -> Dataset:
    """A data set of the catalogue from ``data_dir``, ``SRPFL_DATA`` or the Hub, in that order."""
    chosen = data_dir or os.environ.get("SRPFL_DATA")
    root = Path(chosen).expanduser() if chosen else _download(known)
    source = layouts.find(root, known)

    def build() -> Arrays:
        train, test = layouts.read(source, known)
        train, test = (train, test) if test is not None else split(train, 0.1)  # LEAF's own split
        if known.inverted:
            train, test = (p._replace(x=255 - p.x.astype(np.uint8)) for p in (train, test))
        return arrays_of(train, test)

    arrays = cached(f"{known.name}-{source.layout}", [*source.train, *source.test], build)
    return dataset_of(known.name, arrays, known.classes, known.transform(augment))


def split(points: Points, fraction: float) -> tuple[Points, Points]:
    """Hold out a fraction of every writer's points or, where nobody is named, of every class."""
    groups = points.y if points.writers is None else points.writers
    train, test = (
        Points(
            points.x[rows],
            points.y[rows],
            None if points.writers is None else points.writers[rows],
        )
        for rows in held_out(groups, fraction)
    )
    return train, test


def arrays_of(train: Points, test: Points) -> Arrays:
    arrays = {"x_train": train.x, "y_train": train.y, "x_test": test.x, "y_test": test.y}
    if train.writers is not None and test.writers is not None:
        return {**arrays, "writers_train": train.writers, "writers_test": test.writers}
    return arrays


def dataset_of(name: str, arrays: Arrays, classes: int, transform: Transform) -> Dataset:
    """Only images stay mapped; what a partition goes through many times is read at once."""

    def whole(key: str) -> StrArray | None:
        return np.array(arrays[key]) if key in arrays else None

    return Dataset(
        name,
        Samples(arrays["x_train"], np.array(arrays["y_train"])),
        Samples(arrays["x_test"], np.array(arrays["y_test"])),
        classes,
        transform,
        whole("writers_train"),
        whole("writers_test"),
    )


def _download(known: Known) -> Path:
    """The data set's repository on the Hub, or rather what of it is Parquet."""
    missing = (
        f"no data folder was given for {known.name} (with --data-dir, data_dir= or SRPFL_DATA): "
        f"{layouts.how_to_get(known)}"
    )
    if known.hub is None:
        raise DataError(missing)
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise DataError(missing) from None
    try:
        return Path(snapshot_download(known.hub, repo_type="dataset", allow_patterns=["*.parquet"]))
    except Exception as error:  # the network, the Hub or the disk: many kinds, one consequence
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{known.hub} could not be downloaded from the Hub ({reason}): give a data folder that "
            f"holds {known.name}"
        ) from error

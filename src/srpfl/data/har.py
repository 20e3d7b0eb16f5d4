"""Human activity from a phone's sensors (UCI HAR): six activities, a client per person."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from srpfl.data.base import Transform
from srpfl.data.cache import Arrays, cached
from srpfl.data.dataset import Dataset
from srpfl.data.named import arrays_of, dataset_of
from srpfl.data.points import Points, checked_labels
from srpfl.data.tables import Columns, Table
from srpfl.errors import unknown

SOURCE = (
    "Human Activity Recognition Using Smartphones from https://archive.ics.uci.edu/dataset/240 as "
    "a table with the columns subject, label, split, split_blocked and "
)
CHANNELS, LENGTH, CLASSES = 9, 128, 6
# Total acceleration, body acceleration and angular velocity in x, y and z: mean and standard
# deviation of all training windows. The 561 features are from -1 to 1 already.
STANDARDISED = Transform(
    (0.802, 0.034, 0.100, -0.001, 0.0, 0.0, 0.001, -0.001, 0.001),
    (0.413, 0.389, 0.359, 0.193, 0.121, 0.105, 0.404, 0.375, 0.252),
)
SPLITS = {"blocked": "split_blocked", "random": "split"}
INPUTS = {
    "windows": ("window", (CHANNELS, LENGTH), STANDARDISED),
    "features": ("features", (561,), Transform()),
}


@dataclass(frozen=True, kw_only=True)
class HAR:
    """Windows of nine channels and 128 samples, or 561 features of them.

    Windows overlap by half, so the "random" split tests mostly on what was seen in training. In
    the "blocked" one the last fifth of each person's windows of each activity are for tests, the
    window before them is left out, and nothing is seen twice.
    """

    split: str = "blocked"
    inputs: str = "windows"

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise unknown("split of har", self.split, SPLITS)
        if self.inputs not in INPUTS:
            raise unknown("kind of inputs of har", self.inputs, INPUTS)

    def read(self, data_dir: str | Path | None) -> Dataset:
        column, _, transform = INPUTS[self.inputs]
        files = Table("har", f"{self.inputs}*.parquet", SOURCE + column).find(data_dir)
        arrays = cached(f"har-{self.inputs}-{self.split}", files, lambda: self._build(files))
        dataset = dataset_of("har", arrays, CLASSES, transform)
        return replace(dataset, who="persons", natural=True)

    def _build(self, files: list[Path]) -> Arrays:
        column, shape, _ = INPUTS[self.inputs]
        split_column = SPLITS[self.split]
        columns = Columns(files, ["subject", "label", split_column, column])
        x = columns.vectors(column, math.prod(shape)).reshape(-1, *shape)
        y = checked_labels(columns.whole("label"), columns.where, "har", CLASSES)
        persons = columns.words("subject")
        split = columns.among(split_column, ["train", "test", "gap"])
        train, test = (
            Points(x[split == which], y[split == which], persons[split == which])
            for which in ("train", "test")
        )
        return arrays_of(train, test)

"""Exam scores of pupils of London's schools (1985 to 1987): regression, a client per school."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from srpfl.data.base import Transform
from srpfl.data.cache import Arrays, cached
from srpfl.data.dataset import Dataset
from srpfl.data.named import arrays_of, dataset_of
from srpfl.data.points import Points
from srpfl.data.tables import Columns, Table

TABLE = Table(
    "school",
    "train*.parquet",
    "data/school.mat from https://github.com/jiayuzhou/MALSAR as a table with the columns school, "
    "features, score and split",
)
FEATURES = 28
# Two columns are per cents and the others 0 or 1. The two are standardised, with the mean and the
# standard deviation of all schools' training rows: constants, as for images.
MEAN = tuple({3: 40.964, 4: 22.136}.get(column, 0.0) for column in range(FEATURES))
STD = tuple({3: 15.157, 4: 6.984}.get(column, 1.0) for column in range(FEATURES))


@dataclass(frozen=True, kw_only=True)
class School:
    """28 features of a pupil and its school; the target is the score, from 1 to 70."""

    def read(self, data_dir: str | Path | None) -> Dataset:
        files = TABLE.find(data_dir)
        arrays = cached("school", files, lambda: _build(files))
        dataset = dataset_of("school", arrays, classes=0, transform=Transform(MEAN, STD))
        return replace(dataset, who="schools", natural=True, task="regression")


def _build(files: list[Path]) -> Arrays:
    columns = Columns(files, ["school", "features", "score", "split"])
    x, y = columns.vectors("features", FEATURES), columns.numbers("score")
    schools, split = columns.words("school"), columns.among("split", ["train", "test"])
    train, test = (
        Points(x[split == which], y[split == which], schools[split == which])
        for which in ("train", "test")
    )
    return arrays_of(train, test)

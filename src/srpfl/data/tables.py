"""Data sets that are tables with owners: where they are found, and their columns as arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srpfl.data import packed
from srpfl.data.base import IntArray
from srpfl.data.limits import check_bytes, check_name
from srpfl.data.partition import StrArray
from srpfl.errors import DataError


@dataclass(frozen=True)
class Table:
    """Parquet files of one data set."""

    name: str
    files: str  # a pattern
    source: str  # where to get it

    def find(self, data_dir: str | Path | None) -> list[Path]:
        """Its files in ``data_dir`` (or ``SRPFL_DATA``), or in the sub-folder of its name there."""
        chosen = data_dir or os.environ.get("SRPFL_DATA")
        if not chosen:
            raise DataError(
                f"no data folder was given for {self.name} (with --data-dir, data_dir= or "
                f"SRPFL_DATA): get {self.source}"
            )
        root = Path(chosen).expanduser()
        if not root.is_dir():
            raise DataError(f"the data folder {root} does not exist")
        places = (root / self.name, root / self.name / "data", root, root / "data")
        # Its own sub-folder comes first: beside it, other data sets have files of such names.
        found = (sorted(place.glob(self.files)) for place in places)
        files = next(filter(None, found), None)
        if files is None:
            raise DataError(
                f"no {self.name} in {root}: it has no {self.files}, neither itself nor in a "
                f"sub-folder {self.name}; get {self.source}"
            )
        return files


class Columns:
    """The rows of some files; every column is checked when it is asked for."""

    def __init__(self, paths: Sequence[Path], names: Sequence[str]) -> None:
        import pyarrow as pa

        self.where = str(paths[0]) if len(paths) == 1 else f"{paths[0].parent}/*.parquet"
        tables = []
        for path in paths:
            has = packed.names(path)
            if missing := [name for name in names if name not in has]:
                listed = ", ".join(has)[:500]
                raise DataError(f"{path} has no column '{missing[0]}': it has {listed}")
            tables.append(_table(path, names))
        try:
            self.table = pa.concat_tables(tables)
        except pa.ArrowException as error:
            raise DataError(f"the files {self.where} have columns of different types") from error
        if self.table.num_rows == 0:
            raise DataError(f"{self.where} has no rows")

    def text(self, name: str) -> list[str]:
        import pyarrow as pa

        column = self._column(name, "text", pa.types.is_string, pa.types.is_large_string)
        return packed.values(column, f"the column '{name}' of {self.where}")

    def words(self, name: str) -> StrArray:
        """Names, or whole numbers that stand for names."""
        import pyarrow as pa

        kinds = pa.types.is_string, pa.types.is_large_string, pa.types.is_integer
        where = f"the column '{name}' of {self.where}"
        found = packed.values(self._column(name, "a name", *kinds), where)
        return np.array([check_name(str(word), where) for word in found])

    def whole(self, name: str) -> IntArray:
        import pyarrow as pa

        column = self._column(name, "a whole number", pa.types.is_integer)
        return np.asarray(column.to_numpy(), dtype=np.int64)

    def numbers(self, name: str) -> NDArray[np.float32]:
        import pyarrow as pa

        column = self._column(name, "a number", pa.types.is_floating, pa.types.is_integer)
        return self._finite(name, np.array(column.to_numpy(), dtype=np.float32))

    def vectors(self, name: str, width: int) -> NDArray[np.float32]:
        """Lists of ``width`` numbers, as the rows of one array."""
        import pyarrow as pa
        import pyarrow.compute as pc

        what = f"{width} numbers"
        kinds = pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list
        column = self._column(name, what, *kinds)
        lengths = pc.list_value_length(column).to_numpy()
        if (lengths != width).any():
            row = int(np.argmax(lengths != width))
            raise DataError(
                f"row {row} of {self.where} has {lengths[row]} numbers in '{name}' and not {width}"
            )
        flat = pc.list_flatten(column)
        numeric = pa.types.is_floating(flat.type) or pa.types.is_integer(flat.type)
        if not numeric or flat.null_count:
            raise self._wrong(name, what)
        array = np.array(flat.to_numpy(), dtype=np.float32).reshape(-1, width)
        return self._finite(name, array)

    def among(self, name: str, values: Sequence[str]) -> StrArray:
        """Words of which there are only a few."""
        words = self.words(name)
        bad = ~np.isin(words, values)
        if bad.any():
            row = int(np.argmax(bad))
            raise DataError(
                f"row {row} of {self.where} has '{words[row]}' in '{name}' and not one of "
                f"{', '.join(values)}"
            )
        return words

    def _column(self, name: str, what: str, *kinds: Any) -> Any:
        column = self.table.column(name)
        if column.null_count or not any(kind(column.type) for kind in kinds):
            raise self._wrong(name, what)
        return column

    def _wrong(self, name: str, what: str) -> DataError:
        return DataError(f"the column '{name}' of {self.where} must hold {what} in every row")

    def _finite(self, name: str, array: NDArray[np.float32]) -> NDArray[np.float32]:
        fine = np.isfinite(array).reshape(len(array), -1).all(axis=1)
        if not fine.all():
            row = int(np.argmin(fine))
            raise DataError(
                f"row {row} of {self.where} has a value in '{name}' that is not a finite number"
            )
        return array


def _table(path: Path, names: Sequence[str]) -> Any:
    """Some columns of a file, as long as they take no more than such a file may."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pieces, taken = [], 0
    for batch in packed.batches(path, names):
        pieces.append(batch)
        taken += batch.nbytes
        check_bytes(taken, path)
    with packed.readable(path):
        schema = pa.schema([pq.read_schema(path).field(name) for name in names])
        return pa.Table.from_batches(pieces, pieces[0].schema if pieces else schema).select(
            list(names)
        )

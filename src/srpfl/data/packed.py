"""Parquet files, read a few rows at a time: what they unfold to is known before it is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from srpfl.data.limits import allowed, check_bytes
from srpfl.errors import DataError

ROWS = 2048  # of a batch at most
ALIVE = 4  # batches in memory at a time: the last, the next, and what is made of them
NUMBER = 8  # bytes that a value takes at most, apart from texts


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn whatever a broken file makes its reader raise into one sentence."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path} cannot be read as Parquet: {reason}") from error


def names(path: Path) -> list[str]:
    """The file's columns."""
    import pyarrow.parquet as pq

    with readable(path):
        found: list[str] = pq.read_schema(path).names
    return found


def rows(path: Path) -> int:
    """How many rows the file says that it has."""
    import pyarrow.parquet as pq

    with readable(path):
        return int(pq.read_metadata(path).num_rows)


def batches(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    """The columns' content, batch by batch; the caller keeps what it needs of each.

    Sizes are checked as the file declares them, and batches are so small that a value that is
    stored once and repeated in all rows does not fill the memory.
    """
    import pyarrow.parquet as pq

    with readable(path):
        file = pq.ParquetFile(path)
    with file:
        with readable(path):
            chunks = list(_chunks(file.metadata, columns))
        declared = sum(max(size, NUMBER * count) for size, count in chunks)
        # Nobody says how long the longest value is; a whole piece may be one.
        least = ALIVE * max((size for size, _ in chunks), default=1)
        check_bytes(max(declared, least, NUMBER * file.metadata.num_rows), path)
        each = min(ROWS, allowed(path) // max(1, least))
        found = file.iter_batches(each, columns=list(columns))
        while True:
            with readable(path):
                batch = next(found, None)
            if batch is None:
                return
            yield batch


def _chunks(metadata: Any, columns: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Bytes without compression, and values, of each piece of the columns."""
    for group in range(metadata.num_row_groups):
        pieces = metadata.row_group(group)
        for place in range(pieces.num_columns):
            piece = pieces.column(place)
            if piece.path_in_schema.split(".")[0] in columns:
                yield piece.total_uncompressed_size, piece.num_values


def values(column: Any, where: str) -> list[Any]:
    """The values of a column that may hold texts, which a damaged file may not have."""
    try:
        found: list[Any] = column.to_pylist()
    except UnicodeDecodeError as error:
        raise DataError(f"{where} is damaged: it holds bytes that are no text") from error
    return found

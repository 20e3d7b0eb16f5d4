"""Images in Parquet, in the column layout of the Hugging Face Hub."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from srpfl.data.partition import StrArray
from srpfl.data.points import Images, Points, checked_labels
from srpfl.errors import DataError

IMAGE_COLUMNS = ("img", "image")
BATCH = 2048


def read(
    path: Path,
    name: str,
    *,
    label: str = "label",
    writer: str | None = None,
    channels: int | None = None,
    classes: int | None = None,
) -> Points:
    """All rows of one file. Without ``channels`` the first image decides whether it is colour."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            has = file.schema_arrow.names
            image = next((column for column in IMAGE_COLUMNS if column in has), IMAGE_COLUMNS[-1])
            columns = [image, label] + ([writer] if writer else [])
            for column in columns:
                if column not in has:
                    raise DataError(f"{path} has no column '{column}': it has {', '.join(has)}")
            decoder = _Decoder(path, image, file.metadata.num_rows, channels)
            rest = []
            for batch in file.iter_batches(BATCH, columns=columns):
                decoder.add(batch.column(image))
                rest.append(batch.drop_columns([image]))
            table = pa.Table.from_batches(rest) if rest else None
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} cannot be read as Parquet: {reason}") from error
    if table is None:
        raise DataError(f"{path} has no rows")
    column = table.column(label)
    if not pa.types.is_integer(column.type) or column.null_count:
        raise DataError(f"the column '{label}' of {path} must hold whole numbers in every row")
    y = checked_labels(column.to_numpy(), path, name, classes)
    return Points(decoder.images, y, _writers(table, writer, path))


def has_column(path: Path, column: str) -> bool:
    """Whether a file has such a column; one that cannot be read has none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return column in pq.read_schema(path).names
    except (pa.ArrowException, OSError):
        return False


def _writers(table: Any, writer: str | None, path: Path) -> StrArray | None:
    if writer is None:
        return None
    column = table.column(writer)
    if column.null_count:
        raise DataError(f"the column '{writer}' of {path} must name a writer in every row")
    return np.array(column.to_pylist(), dtype=np.str_)


class _Decoder:
    """Fills one array with the images of a file, row after row."""

    def __init__(self, path: Path, column: str, rows: int, channels: int | None) -> None:
        self.path, self.column, self.rows, self.channels = path, column, rows, channels
        self.images: Images = np.zeros((rows, 0, 0, 0), dtype=np.uint8)
        self.row = 0

    def add(self, cells: Any) -> None:
        import pyarrow as pa

        if pa.types.is_struct(cells.type) and cells.type.get_field_index("bytes") >= 0:
            cells = cells.field("bytes")
        if not (pa.types.is_binary(cells.type) or pa.types.is_large_binary(cells.type)):
            raise DataError(
                f"the column '{self.column}' of {self.path} holds {cells.type} and not encoded "
                "images (binary, or a struct with 'bytes')"
            )
        for cell in cells:
            image = self._decoded(cell.as_py())
            if self.row == 0:
                self.images = np.zeros((self.rows, *image.shape), dtype=np.uint8)
            elif image.shape != self.images.shape[1:]:
                raise DataError(
                    f"the image in row {self.row} of {self.path} is {_size(image)}, but those "
                    f"before it are {_size(self.images[0])}"
                )
            self.images[self.row] = image
            self.row += 1

    def _decoded(self, encoded: bytes | None) -> Images:
        from PIL import Image

        if not encoded:
            raise DataError(f"row {self.row} of {self.path} has no image")
        try:
            with Image.open(io.BytesIO(encoded)) as image:
                if self.channels is None:
                    self.channels = 1 if image.mode in ("1", "L", "I", "I;16") else 3
                pixels = np.asarray(image.convert("L" if self.channels == 1 else "RGB"))
        except Exception as error:  # broken files make decoders raise nearly anything
            raise DataError(
                f"the image in row {self.row} of {self.path} cannot be decoded: "
                f"{str(error).splitlines()[0] if str(error) else type(error).__name__}"
            ) from error
        return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _size(image: Images) -> str:
    return f"{image.shape[1]} x {image.shape[2]} pixels"

"""Images in Parquet, in the column layout of the Hugging Face Hub."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from srpfl.data import packed
from srpfl.data.limits import check_bytes, check_name
from srpfl.data.partition import StrArray
from srpfl.data.points import Images, Points, checked_labels
from srpfl.errors import DataError

IMAGE_COLUMNS = ("img", "image")
# Pillow knows many more, and some of them run other programs (EPS) or hold images whose size is not
# in the header (icons).
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")


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

    has = packed.names(path)
    image = next((column for column in IMAGE_COLUMNS if column in has), IMAGE_COLUMNS[-1])
    columns = [image, label] + ([writer] if writer else [])
    for column in columns:
        if column not in has:
            raise DataError(f"{path} has no column '{column}': it has {', '.join(has)[:500]}")
    decoder = _Decoder(path, image, packed.rows(path), channels)
    rest: list[Any] = []
    kept = 0
    for batch in packed.batches(path, columns):
        decoder.add(batch.column(image))
        rest.append(batch.drop_columns([image]))
        kept += rest[-1].nbytes
        check_bytes(kept, path)
    if decoder.row == 0:
        raise DataError(f"{path} has no rows")
    if decoder.row < decoder.rows:
        raise DataError(f"{path} promises {decoder.rows} rows and holds {decoder.row}")
    table = pa.Table.from_batches(rest)
    column = table.column(label)
    if not pa.types.is_integer(column.type) or column.null_count:
        raise DataError(f"the column '{label}' of {path} must hold whole numbers in every row")
    y = checked_labels(column.to_numpy(), path, name, classes)
    return Points(decoder.images, y, _writers(table, writer, path))


def has_column(path: Path, column: str) -> bool:
    """Whether a file has such a column; one that cannot be read has none."""
    try:
        return column in packed.names(path)
    except DataError:
        return False


def _writers(table: Any, writer: str | None, path: Path) -> StrArray | None:
    if writer is None:
        return None
    column = table.column(writer)
    if column.null_count:
        raise DataError(f"the column '{writer}' of {path} must name a writer in every row")
    where = f"the column '{writer}' of {path}"
    return np.array(
        [check_name(str(one), where) for one in packed.values(column, where)], dtype=np.str_
    )


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
        if self.row + len(cells) > self.rows:
            raise DataError(f"{self.path} holds more rows than the {self.rows} it promises")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's, of large images: they are checked here
            for cell in cells:
                self.images[self.row] = self._decoded(cell.as_py())
                self.row += 1

    def _decoded(self, encoded: bytes | None) -> Images:
        if not encoded:
            raise DataError(f"row {self.row} of {self.path} has no image")
        from PIL import UnidentifiedImageError

        try:
            pixels = self._pixels(encoded)
        except DataError:
            raise
        except UnidentifiedImageError as error:  # whose text has an address in it
            raise DataError(
                f"the image in row {self.row} of {self.path} cannot be decoded: it is none of "
                f"{', '.join(FORMATS)}"
            ) from error
        except Exception as error:  # broken files make decoders raise nearly anything
            raise DataError(
                f"the image in row {self.row} of {self.path} cannot be decoded: "
                f"{str(error).splitlines()[0] if str(error) else type(error).__name__}"
            ) from error
        return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)

    def _pixels(self, encoded: bytes) -> Images:
        from PIL import Image

        with Image.open(
            io.BytesIO(encoded), formats=FORMATS
        ) as image:  # reads no more than the header
            width, height = image.size
            if self.row == 0:
                self._allocate(width, height, grey=image.mode in ("1", "L", "I", "I;16"))
            elif (height, width) != self.images.shape[2:]:
                raise DataError(
                    f"the image in row {self.row} of {self.path} is {_size(height, width)}, but "
                    f"those before it are {_size(*self.images.shape[2:])}"
                )
            return np.asarray(image.convert("L" if self.channels == 1 else "RGB"))

    def _allocate(self, width: int, height: int, *, grey: bool) -> None:
        """The first image decides on the array of all of them."""
        self.channels = self.channels or (1 if grey else 3)
        # Pillow holds four bytes a pixel.
        check_bytes(width * height * max(4, self.channels * self.rows), self.path)
        self.images = np.zeros((self.rows, self.channels, height, width), dtype=np.uint8)


def _size(height: int, width: int) -> str:
    return f"{height} x {width} pixels"

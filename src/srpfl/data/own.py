"""A user's own data: ``parquet:PATH`` for images, ``numpy:PATH`` for arrays of any kind."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from srpfl.data import parquet
from srpfl.data.base import Transform
from srpfl.data.cache import Arrays, cached
from srpfl.data.dataset import Dataset
from srpfl.data.limits import check_bytes
from srpfl.data.named import arrays_of, dataset_of, split
from srpfl.data.points import Points, checked_labels, join
from srpfl.errors import DataError

KEYS = ("x_train", "y_train", "x_test", "y_test")
LABELS = ("label", "labels", "fine_label", "character")
WRITERS = ("writer_id", "writer", "client_id", "client")
SINGLE = 4  # bytes of a number as it is kept, unless it is a byte
HEADER = 10_000  # bytes of an array's header that NumPy parses at most


def from_parquet(path: Path) -> Dataset:
    """Images of a user: one file, or a folder with train*.parquet and test*.parquet. Without a test
    part a fifth is held out. Labels count from 0; the images scale to [0, 1]."""
    name = f"parquet:{path}"
    train, test = _parquet_files(path)

    def build() -> Arrays:
        label = next((c for c in LABELS if parquet.has_column(train[0], c)), LABELS[0])
        writer = next((c for c in WRITERS if parquet.has_column(train[0], c)), None)

        def read(files: list[Path], channels: int | None, classes: int | None) -> Points:
            return join(
                [
                    parquet.read(
                        file, name, label=label, writer=writer, channels=channels, classes=classes
                    )
                    for file in files
                ]
            )

        first = read(train, None, None)
        if not test:
            return arrays_of(*split(first, 0.2))
        return arrays_of(first, read(test, first.x.shape[1], int(first.y.max()) + 1))

    arrays = cached("parquet", [*train, *test], build)
    if arrays["x_train"].shape[1:] != arrays["x_test"].shape[1:]:
        raise DataError(f"{path} has training and test images of different sizes")
    return dataset_of(name, arrays, int(arrays["y_train"].max()) + 1, Transform())


def _parquet_files(path: Path) -> tuple[list[Path], list[Path]]:
    if path.is_file():
        return [path], []
    # The Hub's repositories have them in a folder of any name.
    inner = sorted(folder for folder in path.glob("*") if folder.is_dir())
    found = [folder for folder in (path, *inner) if any(folder.glob("train*.parquet"))]
    if not found:
        raise DataError(f"{path} is neither a Parquet file nor a folder with train*.parquet")
    if len(found) > 1 and found[0] != path:
        raise DataError(
            f"{path} holds several data sets, in {', '.join(folder.name for folder in found)}: "
            "name the folder of one"
        )
    return sorted(found[0].glob("train*.parquet")), sorted(found[0].glob("test*.parquet"))


def from_numpy(path: Path) -> Dataset:
    """Arrays of a user, in an .npz without pickles: x_train, y_train, x_test and y_test.

    Bytes scale to [0, 1] and other numbers are taken as they are. Grey images may lack the channel
    axis, and channels may come last.
    """
    arrays = _npz(path)
    points = {}
    classes = None
    for which in ("train", "test"):
        x, y = arrays[f"x_{which}"], arrays[f"y_{which}"]
        where = f"y_{which} in {path}"
        paired = y.ndim == 1 and x.shape[:1] == y.shape
        if not paired or not np.issubdtype(y.dtype, np.integer) or not len(y):
            raise DataError(f"{where} must be one whole number for each row of x_{which}")
        labels = checked_labels(y, where, f"numpy:{path}", classes)
        classes = classes or int(labels.max()) + 1
        points[which] = Points(_inputs(x, f"x_{which} in {path}"), labels)
    if points["train"].x.shape[1:] != points["test"].x.shape[1:]:
        raise DataError(f"{path} has training and test points of different shapes")
    return dataset_of(
        f"numpy:{path}", arrays_of(points["train"], points["test"]), classes or 0, Transform()
    )


def _npz(path: Path) -> Arrays:
    if not path.is_file():
        raise DataError(f"there is no file {path}: numpy:PATH names an .npz file")
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            members = {
                key: next((n for n in (f"{key}.npy", key) if n in names), "") for key in KEYS
            }
            if missing := [key for key, member in members.items() if not member]:
                has = ", ".join(name.removesuffix(".npy") for name in names)
                raise DataError(
                    f"{path} has no array {', '.join(missing)}: it must hold {', '.join(KEYS)}, "
                    f"and it holds {has[:500] or 'nothing'}"
                )
            check_bytes(sum(_declared(archive, member) for member in members.values()), path)
            return {key: _array(archive, member) for key, member in members.items()}
    except DataError:
        raise
    except Exception as error:  # broken files make NumPy and zipfile raise nearly anything
        raise DataError(
            f"{path} cannot be read as an .npz of plain arrays (pickled objects are never opened): "
            f"{str(error).splitlines()[0] if str(error) else type(error).__name__}"
        ) from error


def _declared(archive: zipfile.ZipFile, name: str) -> int:
    """The bytes that an array of the file will take, with what is made of it, from its header
    alone."""
    with archive.open(name) as member:
        wide = np.lib.format.read_magic(member) > (1, 0)
        length = int.from_bytes(member.read(4 if wide else 2), "little")
    if length > HEADER:  # NumPy would read all of it, and then say so
        raise ValueError(f"the header of {name} has {length:,} bytes, more than {HEADER:,}")
    with archive.open(name) as member:
        _ = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_2_0 if wide else np.lib.format.read_array_header_1_0
        shape, _, dtype = read(member)
    if any(side < 0 for side in shape):
        raise ValueError(f"an array cannot have the shape {shape}")
    single = 0 if dtype == np.uint8 else SINGLE
    return math.prod(shape) * (int(dtype.itemsize) + single)


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[np.generic]:
    with archive.open(name) as member:
        found: NDArray[np.generic] = np.lib.format.read_array(member, allow_pickle=False)
    return found


def _inputs(x: NDArray[np.generic], where: str) -> NDArray[np.generic]:
    if x.ndim < 2:
        raise DataError(f"{where} must hold numbers, one row per point")
    if x.dtype.kind not in "iufb":
        raise DataError(f"{where} must hold real numbers, not {x.dtype}")
    if x.dtype != np.uint8:
        with np.errstate(over="ignore"):  # a number beyond single precision is found below
            x = x.astype(np.float32)
        if not np.isfinite(x).all():
            row = int(np.argmin(np.isfinite(x).reshape(len(x), -1).all(axis=1)))
            raise DataError(f"row {row} of {where} has a value that is not a finite number")
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4 and x.shape[-1] in (1, 3) and x.shape[1] not in (1, 3):
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    return x

"""Small files that promise or unfold to more than a machine has: refused before it is allocated."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentence import one_sentence
from srpfl.data import IID, load
from srpfl.data.limits import MAX_CLASSES, MAX_GIB
from srpfl.errors import ConfigError, SrpflError

from .made_up import school_columns, write_hub_cifar10, write_mnist, write_parquet

MIB = 1 << 20
MOST = 32 * MIB


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit of two MiB, a bomb of a hundred is quick to build."""
    monkeypatch.setenv(MAX_GIB, str(2 / 1024))


def refused(name: str, folder: Path | None = None, most: int = MOST) -> str:
    """The sentence with which a file is refused, before it has taken much of Python's memory or of
    Arrow's."""
    usual = pa.default_memory_pool()
    arrows = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(arrows)
    tracemalloc.start()
    try:
        with pytest.raises(SrpflError) as caught:
            load(name, data_dir=folder, clients=1, partition=IID())
        assert tracemalloc.get_traced_memory()[1] < MOST
        assert (arrows.max_memory() or 0) < most
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(usual)
    return one_sentence(caught.value)


def write_repeated(path: Path, value: bytes, rows: int) -> Path:
    """One image, stored once and repeated in all rows; labels are a long run of zeros."""
    images = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array([value]))
    labels = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array([0], pa.int64()))
    table = pa.table({"image": images, "label": labels})
    pq.write_table(table, path, compression="zstd", store_schema=False)
    return path


def test_a_value_repeated_in_all_rows_of_a_parquet_file(tmp_path: Path, small: None) -> None:
    path = write_repeated(tmp_path / "bomb.parquet", bytes(MIB // 4), 200)
    assert path.stat().st_size < 4000
    # The first row is no image.
    assert "cannot be decoded" in refused(f"parquet:{path}", most=2 * MIB)


def test_a_value_that_is_too_long_for_a_batch_of_its_own(tmp_path: Path, small: None) -> None:
    path = write_repeated(tmp_path / "bomb.parquet", bytes(MIB), 2)
    assert "would take 0.0 GiB in memory, more than" in refused(f"parquet:{path}", most=MIB)


def test_a_parquet_file_of_very_many_rows(tmp_path: Path, small: None) -> None:
    path = write_repeated(tmp_path / "bomb.parquet", b"1", 2_000_000)
    assert path.stat().st_size < 20_000
    assert "would take 0.0 GiB in memory, more than" in refused(f"parquet:{path}")


def test_a_table_with_a_column_that_unfolds(tmp_path: Path, small: None) -> None:
    columns = school_columns()
    rows = len(columns["score"])
    table = pa.table(
        {
            **{name: columns[name] for name in ("features", "score", "split")},
            "school": pa.DictionaryArray.from_arrays(
                np.zeros(rows, np.int32), pa.array(["s" * MIB])
            ),
        }
    )
    path = tmp_path / "train.parquet"
    pq.write_table(table, path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 8000
    assert "more than the" in refused("school", tmp_path)


def png_of(width: int, height: int) -> bytes:
    """The beginning of an image: all that it takes to say how large it is."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def test_images_that_would_run_a_program(tmp_path: Path) -> None:
    """Pillow has PostScript drawn by Ghostscript."""
    image = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\nshowpage\n%%EOF\n"
    columns = {"image": [image], "label": [0]}
    path = write_parquet(tmp_path / "drawn.parquet", columns)
    assert "cannot be decoded: it is none of PNG" in refused(f"parquet:{path}")


def test_small_images_of_many_pixels(tmp_path: Path) -> None:
    """Each would pass; all of them together would take 33 GiB."""
    images = [png_of(13_000, 13_000)] * 200
    path = write_parquet(tmp_path / "bomb.parquet", {"image": images, "label": [0] * 200})
    said = refused(f"parquet:{path}")
    assert "31.5 GiB in memory, more than the 1.0 GiB that it may" in said
    assert f"set {MAX_GIB}=32" in said


def test_one_image_of_very_many_pixels(tmp_path: Path) -> None:
    write_hub_cifar10(tmp_path, rows=1)
    path = tmp_path / "train-00000-of-00001.parquet"
    write_parquet(path, {"img": [png_of(60_000, 60_000)], "label": [0]})
    assert "decompression bomb" in refused("cifar10", tmp_path)  # Pillow's own limit


def test_a_gzip_that_unfolds_to_more_than_it_promises(tmp_path: Path) -> None:
    write_mnist(tmp_path, suffix=".gz")
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(bytes([0, 0, 8, 1]) + struct.pack(">I", 40) + bytes(200 * MIB)))
    assert f"{path} promises 40 bytes of data and holds more" in refused("mnist", tmp_path)


def test_an_idx_file_that_promises_much(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(bytes([0, 0, 8, 3]) + struct.pack(">III", 2**31, 2**10, 2**10))
    assert "2,097,152.0 GiB in memory" in refused("mnist", tmp_path)


def write_npz(path: Path, header: bytes, **arrays: np.ndarray) -> Path:
    """An .npz whose first array has this header and nothing behind it."""
    np.savez(path, **arrays)  # type: ignore[arg-type]
    with zipfile.ZipFile(path, "a") as archive:
        size = struct.pack("<H", len(header))
        archive.writestr("x_train.npy", b"\x93NUMPY\x01\x00" + size + header)
    return path


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (f"({2**50}, 1)", "12,582,912.0 GiB in memory"),
        ("(70000, 70000)", "54.8 GiB in memory"),
        (f"({2**70}, {2**70})", "GiB in memory"),
        ("(-5, -2000000000)", "cannot be read as an .npz"),
        ("(" * 300, "cannot be read as an .npz"),
    ],
)
def test_an_array_that_promises_much(tmp_path: Path, shape: str, said: str) -> None:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    rest = {"y_train": np.arange(3), "x_test": np.ones((3, 1)), "y_test": np.arange(3)}
    path = write_npz(tmp_path / "bomb.npz", header, **rest)
    assert said in refused(f"numpy:{path}")


def test_small_numbers_that_become_larger_ones(tmp_path: Path, small: None) -> None:
    whole = {"y_train": np.arange(3), "x_test": np.ones((3, 1)), "y_test": np.arange(3)}
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, x_train=np.zeros((3, MIB // 4), np.int8), **whole)  # type: ignore[arg-type]
    assert "more than" in refused(f"numpy:{path}")  # 0.75 MiB, and 3 MiB in single precision


def add_zeros(path: Path, name: str, head: bytes = b"") -> None:
    """Add a member to an archive that unfolds to a thousand times its own size."""
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open(name, "w") as member,
    ):
        member.write(head)
        for _ in range(4):
            member.write(bytes(MOST // 2))


def test_an_array_with_a_long_header(tmp_path: Path) -> None:
    whole = {"y_train": np.arange(3), "x_test": np.ones((3, 1)), "y_test": np.arange(3)}
    path = tmp_path / "bomb.npz"
    np.savez(path, **whole)  # type: ignore[arg-type]
    add_zeros(path, "x_train.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", 2 * MOST))
    assert "the header of x_train.npy has 67,108,864 bytes" in refused(f"numpy:{path}")


def test_an_array_that_is_there_by_two_names(tmp_path: Path) -> None:
    """NumPy would take the other one of the two."""
    y = np.arange(9) % 3
    whole = {"x_train": np.ones((9, 1)), "y_train": y, "x_test": np.ones((9, 1)), "y_test": y}
    path = tmp_path / "mine.npz"
    np.savez(path, **whole)  # type: ignore[arg-type]
    add_zeros(path, "x_train")
    tracemalloc.start()
    assert load(f"numpy:{path}", clients=1, partition=IID()).size(0) == 9
    assert tracemalloc.get_traced_memory()[1] < MOST
    tracemalloc.stop()


def test_one_label_of_a_billion(tmp_path: Path) -> None:
    arrays = {"x_train": np.ones((3, 1)), "x_test": np.ones((3, 1)), "y_test": np.zeros(3, int)}
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays, y_train=np.array([0, 1, 10**9]))
    said = refused(f"numpy:{path}")
    assert "has the label 1000000000, which would make 1,000,000,001 classes" in said
    assert f"set {MAX_CLASSES}=1000000001" in said


def test_limits_can_be_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = {"x_train": np.ones((4, 1)), "x_test": np.ones((1, 1)), "y_test": np.zeros(1, int)}
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays, y_train=np.array([0, 1, 2, 150_000]))
    assert MAX_CLASSES in refused(f"numpy:{path}")
    monkeypatch.setenv(MAX_CLASSES, "150001")
    assert load(f"numpy:{path}", clients=1, partition=IID()).classes == 150_001
    monkeypatch.setenv(MAX_GIB, "1e-9")
    assert MAX_GIB in refused(f"numpy:{path}")
    monkeypatch.setenv(MAX_GIB, "0.5")
    assert load(f"numpy:{path}", clients=1, partition=IID()).clients == 1


@pytest.mark.parametrize("limit", ["much", "-1", "nan", "0"])
def test_a_limit_that_is_none_is_said(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path)
    monkeypatch.setenv(MAX_GIB, limit)
    with pytest.raises(ConfigError, match=f"{MAX_GIB} must be a positive number, not '{limit}'"):
        load("mnist", data_dir=tmp_path, clients=1)

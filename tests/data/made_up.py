"""Small made-up files in every layout."""

from __future__ import annotations

import gzip
import io
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def pictures(count: int, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def write_parquet(path: Path, columns: dict[str, Sequence[Any]]) -> Path:
    """A file with the given columns; one of byte strings becomes the Hub's struct of images."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def column(values: Sequence[Any]) -> Any:
        if isinstance(values[0], bytes):
            return pa.array([{"bytes": v, "path": None} for v in values])
        return pa.array(values)

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({name: column(values) for name, values in columns.items()}), path)
    return path


def write_idx(path: Path, array: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    data = head + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_mnist(folder: Path, *, suffix: str = "", prefix: str = "", test: str = "t10k") -> None:
    """Forty training and twenty test images of ten classes; image n is the n-th of pictures()."""
    for split, count in (("train", 40), (test, 20)):
        write_idx(
            folder / f"{prefix}{split}-images-idx3-ubyte{suffix}", pictures(count, (28, 28), count)
        )
        write_idx(folder / f"{prefix}{split}-labels-idx1-ubyte{suffix}", np.arange(count) % 10)


def write_cifar10(folder: Path) -> None:
    """Ten images, one per class, in each batch of the binary version."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        records = pictures(10, (3073,), number)
        records[:, 0] = np.arange(10)
        (folder / f"{name}.bin").write_bytes(records.tobytes())


def write_leaf(folder: Path, people: int = 4, each: int = 20) -> np.ndarray:
    """Two classes by every writer; returns the bytes of the first writer's training images."""
    for split, seed in (("train", 0), ("test", 1)):
        images = pictures(people * each, (784,), seed).reshape(people, each, 784)
        content = {
            "users": [f"f{n}" for n in range(people)],
            "num_samples": [each] * people,
            "user_data": {
                f"f{n}": {
                    "x": (images[n] / 255).tolist(),
                    "y": [i % 2 for i in range(each)],
                }
                for n in range(people)
            },
        }
        (folder / split).mkdir(parents=True, exist_ok=True)
        (folder / split / f"all_data_0_niid_0_keep_0_{split}_9.json").write_text(
            json.dumps(content)
        )
    return pictures(people * each, (784,), 0).reshape(people, each, 784)[0]


def write_hub_cifar10(folder: Path, rows: int = 40) -> np.ndarray:
    """PNG images as the Hub stores them; returns the training pixels, channels last."""
    for split, count in (("train", rows), ("test", 20)):
        images = pictures(count, (32, 32, 3), count)
        write_parquet(
            folder / f"{split}-00000-of-00001.parquet",
            {"img": [png(image) for image in images], "label": [n % 10 for n in range(count)]},
        )
    return pictures(rows, (32, 32, 3), rows)


def write_shakespeare(folder: Path, roles: dict[str, list[str]]) -> Path:
    """Speeches of several roles in turn: everybody's first, then everybody's second, and so on."""
    rows = [
        (role, speeches[turn])
        for turn in range(max(map(len, roles.values())))
        for role, speeches in roles.items()
        if turn < len(speeches)
    ]
    return write_parquet(
        folder / "train-00000-of-00001.parquet",
        {"character_id": [role for role, _ in rows], "text": [speech for _, speech in rows]},
    )


def school_columns(schools: int = 3, each: int = 10) -> dict[str, list[Any]]:
    """Every fifth pupil is for tests; the score is the pupil's number."""
    pupils = range(schools * each)
    rng = np.random.default_rng(0)
    return {
        "school": [1 + pupil % schools for pupil in pupils],
        "features": rng.integers(0, 2, (len(pupils), 28)).astype(np.float32).tolist(),
        "score": [float(pupil) for pupil in pupils],
        "split": ["test" if pupil // schools % 5 == 4 else "train" for pupil in pupils],
    }


def har_columns(persons: int = 3, each: int = 18, width: int = 1152) -> dict[str, list[Any]]:
    """Windows in the order of time: twelve (blocked: eleven, then a gap) for training, six for
    tests. The first number of a window is its row."""
    rows = range(persons * each)
    values = np.random.default_rng(0).normal(size=(len(rows), width)).astype(np.float32)
    values[:, 0] = rows
    at = [row % each for row in rows]
    return {
        "subject": [1 + row // each for row in rows],
        "label": [row % 6 for row in rows],
        "split": ["train" if place < 12 else "test" for place in at],
        "split_blocked": ["train" if p < 11 else "gap" if p == 11 else "test" for p in at],
        "window" if width == 1152 else "features": values.tolist(),
    }

"""Random damage of every kind of data file: it is read, or refused in one sentence."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import srpfl
from sentence import one_sentence
from srpfl.errors import SrpflError

from .made_up import (
    har_columns,
    pictures,
    png,
    school_columns,
    write_cifar10,
    write_hub_cifar10,
    write_leaf,
    write_mnist,
    write_parquet,
    write_shakespeare,
)

DAMAGES = 12  # of each kind of file in one trial
AT_WORK = ["a thought, a thought", "of other things"] * 40


def own_parquet(folder: Path) -> None:
    images = [png(image) for image in pictures(20, (8, 8))]
    write_parquet(folder / "mine.parquet", {"image": images, "label": [n % 2 for n in range(20)]})


def own_numpy(folder: Path) -> None:
    x, y = np.ones((20, 3)), np.arange(20) % 2
    np.savez_compressed(folder / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)


def devices(folder: Path) -> None:
    rows = "".join(f"phone{n},{100 + n}\n" for n in range(20))
    (folder / "phones.csv").write_text("model,cpu_float_score\n" + rows)


WRITERS: dict[str, Callable[[Path], object]] = {
    "cifar10": write_hub_cifar10,
    "cifar10 binary": write_cifar10,
    "femnist": write_leaf,
    "har": lambda folder: write_parquet(folder / "windows.parquet", har_columns()),
    "mnist": write_mnist,
    "mnist packed": lambda folder: write_mnist(folder, suffix=".gz"),
    "school": lambda folder: write_parquet(folder / "train.parquet", school_columns()),
    "shakespeare": lambda folder: write_shakespeare(folder, {"a": AT_WORK, "b": AT_WORK}),
    "parquet": own_parquet,
    "numpy": own_numpy,
    "devices": devices,
}


def read(kind: str, folder: Path) -> None:
    if kind == "devices":
        srpfl.DeviceProfiles(devices=str(folder / "phones.csv"))
        return
    name, file = kind.split()[0], next(folder.iterdir())
    natural = name in ("har", "school", "shakespeare", "femnist")
    partition = srpfl.data.Natural() if natural else srpfl.data.IID()
    own = name in ("parquet", "numpy")
    options = {"clients": 1, "partition": partition, "data_dir": None if own else folder}
    srpfl.data.load(f"{name}:{file}" if own else name, **options)  # type: ignore[arg-type]


def damaged(content: bytes, rng: random.Random) -> bytes:
    """The bytes cut, changed, doubled or filled with something else."""
    start = rng.randrange(len(content))
    end = min(len(content), start + rng.choice([1, 1, 4, 50, 2000]))
    piece = content[start:end]
    replaced = rng.choice(
        [
            b"",
            bytes(len(piece)),
            b"\xff" * len(piece),
            rng.randbytes(len(piece)),
            piece * 3,
            bytes(byte ^ 1 << rng.randrange(8) for byte in piece),
            b"[" * 5000,
            b"9" * 5000,
        ]
    )
    tail = b"" if rng.random() < 0.1 else content[end:]
    return content[:start] + replaced + tail


@pytest.mark.faults
@pytest.mark.parametrize("kind", WRITERS)
def test_a_damaged_file_is_read_or_refused_in_one_sentence(
    kind: str, trial: int, tmp_path: Path
) -> None:
    WRITERS[kind](tmp_path)
    read(kind, tmp_path)  # it is whole, to begin with
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    rng = random.Random(f"{kind} {trial}")
    for _ in range(DAMAGES):
        path = rng.choice(files)
        whole = path.read_bytes()
        path.write_bytes(damaged(whole, rng))
        try:
            read(kind, tmp_path)
        except SrpflError as error:
            one_sentence(error)
        finally:
            path.write_bytes(whole)

"""The real images, where the machine has them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from command import srpfl
from srpfl.data import IID, Pooled, Shards, Writers, counts, load

pytestmark = pytest.mark.slow  # a hundred thousand images are decoded


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests of this file, in all worker processes: decoding takes seconds."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "real-images"


@pytest.fixture(autouse=True)
def shared_cache(cache: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRPFL_CACHE", str(kept))


@pytest.mark.parametrize(
    ("name", "options", "shape", "classes", "train", "test"),
    [
        ("cifar10", {"partition": Shards(5)}, (3, 32, 32), 10, {500}, {100}),
        ("cifar100", {"partition": Shards(20)}, (3, 32, 32), 100, {250}, {50}),
        ("emnist", {"partition": Shards(5), "classes": 10}, (1, 28, 28), 10, {75}, {15}),
        (
            "femnist",
            {"partition": Shards(3), "classes": 10, "per_client": 150},
            (1, 28, 28),
            10,
            {150},
            None,
        ),
    ],
    ids=["cifar10", "cifar100", "emnist", "femnist"],
)
def test_the_papers_clients(
    real_data: Path,
    name: str,
    options: dict[str, object],
    shape: tuple[int, ...],
    classes: int,
    train: set[int],
    test: set[int] | None,
) -> None:
    data = load(name, data_dir=real_data, clients=100, **options)  # type: ignore[arg-type]
    assert data.classes == classes
    assert data.train(0).x.shape[1:] == shape
    assert {len(part) for part in data.train_parts} == train
    if test is not None:
        assert {len(part) for part in data.test_parts} == test
    held = (counts(data) > 0).sum(axis=1)
    assert set(held.tolist()) == {options["partition"].classes_per_client}  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "emnist", "femnist"])
def test_normalised_training_images_have_mean_0_and_spread_1(real_data: Path, name: str) -> None:
    import torch

    data = load(name, data_dir=real_data, clients=20, partition=IID())
    images = torch.from_numpy(np.asarray(data.train_pool.x[:10_000]))
    values = data.transform.prepare(images)
    # A sample of the published set, in CIFAR-10's case recompressed.
    assert values.mean(dim=(0, 2, 3)).abs().max() < 0.02
    assert (values.std(dim=(0, 2, 3)) - 1).abs().max() < 0.02


def test_ink_is_high_in_emnist_and_femnist_alike(real_data: Path) -> None:
    for name in ("emnist", "femnist"):
        data = load(name, data_dir=real_data, clients=20, partition=IID())
        assert np.median(data.train_pool.x[:1000]) == 0


@pytest.mark.parametrize("clients", [20, 376])
def test_writers_are_clients(real_data: Path, clients: int) -> None:
    data = load("femnist", data_dir=real_data, clients=clients, partition=Writers())
    assert data.clients == clients
    if clients == 376:
        assert sum(len(part) for part in data.train_parts) == 53_851
        assert sum(len(part) for part in data.test_parts) == 6_137


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "emnist", "femnist"])
def test_twenty_clients_with_five_classes(real_data: Path, name: str) -> None:
    data = load(name, data_dir=real_data, clients=20, partition=Shards(5))
    assert ((counts(data) > 0).sum(axis=1) == 5).all()
    assert sum(len(part) for part in data.train_parts) == len(data.train_pool.y)


def test_the_second_load_of_cifar10_is_quick(real_data: Path) -> None:
    def loaded() -> Pooled:
        return load("cifar10", data_dir=real_data, clients=100, partition=Shards(5))

    loaded()
    start = time.perf_counter()
    data = loaded()
    seconds = time.perf_counter() - start
    assert isinstance(data.train_pool.x, np.memmap)
    assert seconds < 2


def test_cifar100_is_lossless(real_data: Path) -> None:
    """Its PNG rows, read by hand, against what the loader gives."""
    import io

    import pyarrow.parquet as pq
    from PIL import Image

    (path,) = (real_data / "cifar100").glob("test*.parquet")
    table = pq.read_table(path).slice(0, 50)
    data = load("cifar100", data_dir=real_data, clients=20, partition=Shards(5))
    for row, cell in enumerate(table["img"].to_pylist()):
        pixels = np.asarray(Image.open(io.BytesIO(cell["bytes"])))
        assert (data.test_pool.x[row] == pixels.transpose(2, 0, 1)).all()
    assert data.test_pool.y[:50].tolist() == table["fine_label"].to_pylist()


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("cifar10", ["--shards", "5"]),
        ("cifar100", ["--shards", "5"]),
        ("emnist", ["--shards", "5"]),
        ("femnist", ["--shards", "5"]),
        ("femnist", ["--partition", "writer"]),
    ],
)
def test_the_command_trains_on_real_images(
    real_data: Path, tmp_path: Path, name: str, more: list[str]
) -> None:
    words = ["run", "--data", name, "--data-dir", str(real_data), "--method", "srpfl", *more]
    words += ["--clients", "4", "--per-client", "20", "--rounds", "2", "--out", "run"]
    srpfl(*words, cwd=tmp_path)
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 2

"""Every layout gives the pixels and labels that are in its files."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest

from srpfl.data import IID, Transform, Writers, load

from .made_up import (
    pictures,
    png,
    write_cifar10,
    write_hub_cifar10,
    write_leaf,
    write_mnist,
    write_parquet,
)

ONE = {"clients": 1, "partition": IID()}


def test_hub_parquet(tmp_path: Path) -> None:
    pixels = write_hub_cifar10(tmp_path)
    data = load("cifar10", data_dir=tmp_path, **ONE)
    assert data.train_pool.x.dtype == np.uint8
    assert (data.train_pool.x == pixels.transpose(0, 3, 1, 2)).all()
    assert data.train_pool.y.tolist() == [n % 10 for n in range(40)]
    assert data.classes == 10


@pytest.mark.parametrize("inner", ["cifar10", "cifar-10", "plain_text", "cifar10/plain_text"])
def test_a_folder_that_holds_the_folder(tmp_path: Path, inner: str) -> None:
    write_hub_cifar10(tmp_path / inner)
    assert len(load("cifar10", data_dir=tmp_path, **ONE).train_pool.y) == 40


def test_several_files_of_a_split_are_read_in_order(tmp_path: Path) -> None:
    write_hub_cifar10(tmp_path)
    more = pictures(3, (32, 32, 3), 99)
    write_parquet(
        tmp_path / "train-00001-of-00002.parquet",
        {"img": [png(image) for image in more], "label": [7, 8, 9]},
    )
    data = load("cifar10", data_dir=tmp_path, **ONE)
    assert data.train_pool.y[-3:].tolist() == [7, 8, 9]
    assert (data.train_pool.x[-3:] == more.transpose(0, 3, 1, 2)).all()


def test_the_folder_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_hub_cifar10(tmp_path)
    monkeypatch.setenv("SRPFL_DATA", str(tmp_path))
    assert load("cifar10", **ONE).clients == 1


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "inner"), [("mnist", ""), ("fashion-mnist", "fashion-mnist"), ("mnist", "MNIST/raw")]
)
def test_idx(tmp_path: Path, suffix: str, name: str, inner: str) -> None:
    write_mnist(tmp_path / inner, suffix=suffix)
    data = load(name, data_dir=tmp_path, **ONE)
    assert (data.train_pool.x == pictures(40, (1, 28, 28), 40)).all()
    assert (data.test_pool.x == pictures(20, (1, 28, 28), 20)).all()
    assert data.test_pool.y.tolist() == [n % 10 for n in range(20)]


def test_emnist_of_the_official_files_comes_upright(tmp_path: Path) -> None:
    write_mnist(tmp_path / "emnist", prefix="emnist-balanced-", test="test")
    data = load("emnist", data_dir=tmp_path, **ONE)
    assert (data.train_pool.x[:, 0] == pictures(40, (28, 28), 40).transpose(0, 2, 1)).all()
    assert data.classes == 47


def test_cifar10_binary(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-bin")
    data = load("cifar10", data_dir=tmp_path, **ONE)
    assert data.train_pool.x.shape == (50, 3, 32, 32)
    assert data.train_pool.y.tolist() == list(range(10)) * 5
    second_batch = pictures(10, (3073,), 1)
    assert (data.train_pool.x[13].ravel() == second_batch[3, 1:]).all()


def test_cifar100_binary_uses_the_fine_label(tmp_path: Path) -> None:
    for split in ("train", "test"):
        records = pictures(100, (3074,))
        records[:, 0] = 19
        records[:, 1] = np.arange(100)
        (tmp_path / f"{split}.bin").write_bytes(records.tobytes())
    data = load("cifar100", data_dir=tmp_path, **ONE)
    assert data.train_pool.y.tolist() == list(range(100))
    assert (data.train_pool.x[5].ravel() == pictures(100, (3074,))[5, 2:]).all()


def test_cifar100_parquet_uses_the_fine_label(tmp_path: Path) -> None:
    for split in ("train", "test"):
        images = [png(image) for image in pictures(4, (32, 32, 3))]
        write_parquet(
            tmp_path / f"{split}.parquet",
            {"img": images, "fine_label": [9, 99, 0, 5], "coarse_label": [1, 2, 3, 4]},
        )
    data = load("cifar100", data_dir=tmp_path, **ONE)
    assert data.train_pool.y.tolist() == [9, 99, 0, 5]


def test_leaf_gives_the_bytes_back_inverted_and_knows_the_writers(tmp_path: Path) -> None:
    first = write_leaf(tmp_path / "femnist" / "data")
    data = load("femnist", data_dir=tmp_path, clients=4, partition=Writers(), seed=0)
    assert (data.train_pool.x[:20].reshape(20, 784) == 255 - first).all()
    assert [len(part) for part in data.train_parts] == [20] * 4
    starts = sorted(int(part[0]) for part in data.train_parts)
    assert starts == [0, 20, 40, 60]


def femnist_columns(count: int, seed: int = 0) -> dict[str, list[object]]:
    return {
        "image": [png(image) for image in pictures(count, (28, 28), seed)],
        "writer_id": [f"f{n % 5}" for n in range(count)],
        "hsf_id": [0] * count,
        "character": [n % 62 for n in range(count)],
    }


def test_femnist_parquet_is_inverted_too(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train.parquet", femnist_columns(100))
    write_parquet(tmp_path / "test.parquet", femnist_columns(20, 1))
    data = load("femnist", data_dir=tmp_path, clients=5, partition=Writers())
    assert (data.train_pool.x[:, 0] == 255 - pictures(100, (28, 28))).all()
    for train, test in zip(data.train_parts, data.test_parts, strict=True):
        assert set(train % 5) == set(test % 5)
        assert len(set(train % 5)) == 1


def test_femnist_without_a_test_file_holds_a_tenth_of_each_writer_out(tmp_path: Path) -> None:
    """So it is on the Hub."""
    write_parquet(tmp_path / "data" / "train.parquet", femnist_columns(100))
    data = load("femnist", data_dir=tmp_path, clients=5, partition=Writers())
    assert [len(part) for part in data.train_parts] == [18] * 5
    assert [len(part) for part in data.test_parts] == [2] * 5


def test_a_users_own_parquet_folder(tmp_path: Path) -> None:
    for split, count in (("train", 30), ("test", 6)):
        write_parquet(
            tmp_path / f"{split}.parquet",
            {
                "image": [png(image) for image in pictures(count, (8, 9))],
                "label": [n % 3 for n in range(count)],
            },
        )
    data = load(f"parquet:{tmp_path}", **ONE)
    assert data.train_pool.x.shape == (30, 1, 8, 9)
    assert data.classes == 3
    assert data.transform == Transform()


def test_a_users_own_parquet_file_is_split_by_class(tmp_path: Path) -> None:
    path = write_parquet(
        tmp_path / "mine.parquet",
        {
            "image": [png(image) for image in pictures(50, (8, 8, 3))],
            "label": [n % 2 for n in range(50)],
        },
    )
    data = load(f"parquet:{path}", **ONE)
    assert np.bincount(data.train_pool.y).tolist() == [20, 20]
    assert np.bincount(data.test_pool.y).tolist() == [5, 5]
    assert data.train_pool.x.shape[1:] == (3, 8, 8)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((12,), (12,)), ((8, 8), (1, 8, 8)), ((8, 8, 3), (3, 8, 8)), ((3, 8, 8), (3, 8, 8))],
)
def test_a_users_own_arrays(
    tmp_path: Path, shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    x, y = pictures(20, shape), np.arange(20) % 4
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    data = load(f"numpy:{tmp_path}/mine.npz", **ONE)
    assert data.train_pool.x.shape[1:] == expected
    assert data.train_pool.x.dtype == np.uint8
    in_order = x.transpose(0, 3, 1, 2) if shape[-1] == 3 else x.reshape(data.train_pool.x.shape)
    assert (data.train_pool.x == in_order).all()
    assert data.classes == 4


def test_a_users_own_floats_stay_as_they_are(tmp_path: Path) -> None:
    x, y = np.linspace(-5, 5, 40).reshape(20, 2), np.arange(20) % 4
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    data = load(f"numpy:{tmp_path}/mine.npz", **ONE)
    assert data.train_pool.x.dtype == np.float32
    np.testing.assert_array_equal(data.train_pool.x, x.astype(np.float32))


def test_transforms() -> None:
    from srpfl.data.catalogue import KNOWN

    for name, known in KNOWN.items():
        cifar = name.startswith("cifar")
        transform = known.transform(augment=True)
        assert transform.augments == cifar
        assert (transform.crop, transform.flip) == ((4, True) if cifar else (0, False))
        assert not known.transform(augment=False).augments
        assert len(transform.mean) == len(transform.std) == known.channels


def test_without_a_folder_it_comes_from_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def snapshot_download(repo: str, *, repo_type: str, allow_patterns: list[str]) -> str:
        asked.append((repo, repo_type, allow_patterns))
        write_hub_cifar10(tmp_path / "plain_text")
        return str(tmp_path)

    hub = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert len(load("cifar10", **ONE).train_pool.y) == 40
    assert asked == [("uoft-cs/cifar10", "dataset", ["*.parquet"])]

"""Decoded once: the second load decodes nothing, a changed file is noticed, trouble is no end."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from srpfl.data import IID, Pooled, load, parquet

from .made_up import pictures, png, write_hub_cifar10, write_parquet


def cifar(folder: Path) -> Pooled:
    return load("cifar10", data_dir=folder, clients=2, partition=IID())


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were really read."""
    read, files = parquet.read, []

    def noted(path: Path, *args: object, **options: object) -> object:
        files.append(path)
        return read(path, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(parquet, "read", noted)
    return files


def test_the_second_load_decodes_nothing(tmp_path: Path, decoded: list[Path]) -> None:
    write_hub_cifar10(tmp_path)
    first = cifar(tmp_path)
    assert len(decoded) == 2
    second = cifar(tmp_path)
    assert len(decoded) == 2
    assert (first.train_pool.x == second.train_pool.x).all()
    assert (first.test_pool.y == second.test_pool.y).all()
    assert isinstance(second.train_pool.x, np.memmap)


def test_a_moved_folder_is_not_decoded_again(tmp_path: Path, decoded: list[Path]) -> None:
    write_hub_cifar10(tmp_path / "here")
    cifar(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    cifar(tmp_path / "there")
    assert len(decoded) == 2


def test_changed_content_is_noticed_even_with_size_and_time_kept(tmp_path: Path) -> None:
    write_hub_cifar10(tmp_path)
    path = tmp_path / "train-00000-of-00001.parquet"
    before = cifar(tmp_path)
    was = path.stat()
    images = [png(image) for image in pictures(40, (32, 32, 3), 40)]
    write_parquet(path, {"img": images, "label": [n % 10 for n in range(1, 41)]})
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert path.stat().st_mtime_ns == was.st_mtime_ns
    after = cifar(tmp_path)
    assert before.train_pool.y[0] == 0
    assert after.train_pool.y[0] == 1


def test_a_damaged_cache_is_built_anew(tmp_path: Path, cache: Path, decoded: list[Path]) -> None:
    write_hub_cifar10(tmp_path)
    expected = np.array(cifar(tmp_path).train_pool.x)
    for name, damage in (("x_train", b"short"), ("y_test", b"")):
        (file,) = cache.glob(f"*/{name}.npy")
        file.write_bytes(damage)
        assert (cifar(tmp_path).train_pool.x == expected).all()
    (file,) = cache.glob("*/y_train.npy")
    file.unlink()
    assert (cifar(tmp_path).train_pool.x == expected).all()
    assert len(decoded) == 8


@pytest.mark.parametrize("name", ["x_train", "y_train", "x_test", "y_test"])
def test_flipped_pixels_and_changed_labels_are_noticed(
    name: str,
    tmp_path: Path,
    cache: Path,
    decoded: list[Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With size and time kept, as a failing disk or a stranger would leave them."""
    write_hub_cifar10(tmp_path)
    before = [np.array(array) for array in cifar(tmp_path).train_pool]
    (file,) = cache.glob(f"*/{name}.npy")
    was, content = file.stat(), bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
    after = cifar(tmp_path)
    assert len(decoded) == 4
    assert f"({name}.npy is not what was kept): cifar10-Parquet is decoded again" in caplog.text
    for one, other in zip(before, after.train_pool, strict=True):
        assert (one == other).all()
    cifar(tmp_path)
    assert len(decoded) == 4  # and what was built anew is kept


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, '{"x_train": 5}', None])
def test_a_cache_without_its_checksums_is_built_anew(
    text: str | None, tmp_path: Path, cache: Path, decoded: list[Path]
) -> None:
    write_hub_cifar10(tmp_path)
    cifar(tmp_path)
    (file,) = cache.glob("*/checksums.json")
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    cifar(tmp_path)
    assert len(decoded) == 4


@pytest.mark.parametrize("name", ["checksums.json", "x_train.npy"])
def test_a_pipe_in_the_cache_does_not_hang(
    name: str, tmp_path: Path, cache: Path, decoded: list[Path]
) -> None:
    """Nor does a device, which would fill the memory."""
    write_hub_cifar10(tmp_path)
    cifar(tmp_path)
    (file,) = cache.glob(f"*/{name}")
    file.unlink()
    os.mkfifo(file)
    cifar(tmp_path)
    assert len(decoded) == 4


def test_nothing_half_written_stays_behind(tmp_path: Path, cache: Path) -> None:
    write_hub_cifar10(tmp_path)
    cifar(tmp_path)
    assert len(list(cache.iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_not_fatal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pixels = write_hub_cifar10(tmp_path / "data")
    (tmp_path / "file").write_text("")  # a folder cannot be made below a file, not even by root
    monkeypatch.setenv("SRPFL_CACHE", str(tmp_path / "file" / "cache"))
    data = cifar(tmp_path / "data")
    assert (data.train_pool.x == pixels.transpose(0, 3, 1, 2)).all()
    assert "cannot be kept in the cache" in caplog.text


def test_a_disk_that_fills_up_leaves_nothing_behind(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    write_hub_cifar10(tmp_path)
    monkeypatch.setattr(np, "save", full)
    assert cifar(tmp_path).clients == 2
    assert list(cache.iterdir()) == []


def test_clients_get_arrays_that_pytorch_takes(tmp_path: Path) -> None:
    """Warnings are errors here: a read-only array would make torch.from_numpy warn."""
    write_hub_cifar10(tmp_path)
    data = cifar(tmp_path)
    assert torch.from_numpy(data.train(0).x).shape == (20, 3, 32, 32)
    assert torch.from_numpy(data.train_pool.x).dtype == torch.uint8


def test_what_is_written_to_a_loaded_array_does_not_reach_the_cache(tmp_path: Path) -> None:
    write_hub_cifar10(tmp_path)
    data = cifar(tmp_path)
    data.train_pool.x[:] = 0  # type: ignore[index]
    assert cifar(tmp_path).train_pool.x.max() > 0  # type: ignore[attr-defined]


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from srpfl.data.cache import folder

    monkeypatch.delenv("SRPFL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder() == tmp_path / "srpfl"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder() == tmp_path / ".cache" / "srpfl"


def test_without_a_home_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decoded: list[Path]
) -> None:
    """A folder that everybody can guess, as in /tmp, anybody could fill beforehand."""

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    write_hub_cifar10(tmp_path / "data")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.delenv("SRPFL_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    cifar(tmp_path / "data")
    cifar(tmp_path / "data")
    assert len(decoded) == 4
    assert list((tmp_path / "tmp").iterdir()) == []

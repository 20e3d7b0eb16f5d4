"""Bad data gets one clear sentence that says what is wrong, where, and what to do."""

from __future__ import annotations

import json
import pickle
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from srpfl.data import IID, Natural, load
from srpfl.errors import ConfigError, DataError, SrpflError

from .made_up import (
    pictures,
    png,
    write_cifar10,
    write_hub_cifar10,
    write_idx,
    write_leaf,
    write_mnist,
    write_parquet,
)


def refused(name: str, data_dir: Path | None = None, **options: object) -> str:
    """The sentence with which a load is refused."""
    with pytest.raises(SrpflError) as caught:
        load(name, data_dir=data_dir, clients=1, partition=IID(), **options)  # type: ignore[arg-type]
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown data set 'cifar-10': did you mean 'cifar10'"):
        load("cifar-10")


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    assert f"the data folder {tmp_path}/nowhere does not exist" in refused(
        "mnist", tmp_path / "nowhere"
    )


def test_an_empty_folder_names_files_folder_and_source(tmp_path: Path) -> None:
    sentence = refused("fashion-mnist", tmp_path)
    assert str(tmp_path) in sentence
    assert "train*.parquet or train-images-idx3-ubyte[.gz]" in sentence
    assert "dataset-fashion-mnist" in sentence
    assert "zalando-datasets/fashion_mnist" in sentence


def test_no_folder_and_no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    sentence = refused("cifar10")
    assert "no data folder was given for cifar10" in sentence
    assert "SRPFL_DATA" in sentence
    assert "srpfl[hub]" in sentence


def test_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot_download(*_: object, **__: object) -> str:
        raise ConnectionError("no route\nto the Hub")

    hub = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    sentence = refused("mnist")
    assert "ylecun/mnist could not be downloaded from the Hub (no route): give a data" in sentence


def test_emnist_is_not_on_the_hub() -> None:
    assert "get the balanced split from https://www.nist.gov" in refused("emnist")


@pytest.mark.parametrize(
    "name",
    ["t10k-labels-idx1-ubyte", "train-images-idx3-ubyte", "t10k-images-idx3-ubyte"],
)
def test_a_missing_idx_file_is_named(tmp_path: Path, name: str) -> None:
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / name).unlink()
    assert f"{tmp_path}/mnist lacks {name} of mnist (IDX): get the IDX" in refused(
        "mnist", tmp_path
    )


def test_a_missing_batch_is_named(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    (tmp_path / "data_batch_3.bin").unlink()
    assert f"{tmp_path} lacks data_batch_3.bin of cifar10" in refused("cifar10", tmp_path)


def test_a_missing_parquet_split_is_named(tmp_path: Path) -> None:
    write_hub_cifar10(tmp_path)
    (tmp_path / "test-00000-of-00001.parquet").unlink()
    assert f"{tmp_path} lacks test*.parquet of cifar10" in refused("cifar10", tmp_path)


def test_a_missing_leaf_split_is_named(tmp_path: Path) -> None:
    write_leaf(tmp_path)
    next((tmp_path / "test").iterdir()).unlink()
    assert f"{tmp_path} lacks test/*.json of femnist" in refused("femnist", tmp_path)


@pytest.mark.parametrize("inner", ["", "cifar-10-batches-bin"])
def test_two_layouts(tmp_path: Path, inner: str) -> None:
    write_hub_cifar10(tmp_path)
    write_cifar10(tmp_path / inner)
    sentence = refused("cifar10", tmp_path)
    assert f"as Parquet in {tmp_path} and as binary in {tmp_path / inner}" in sentence
    assert "give the folder of the one that is meant" in sentence


def test_packed_and_unpacked_files_are_one_layout(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    write_mnist(tmp_path, suffix=".gz")
    assert load("mnist", data_dir=tmp_path, clients=1, partition=IID()).clients == 1


class Bomb:
    """Unpickling this fails the test."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("unpickled",)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("cifar10", "cifar-10-batches-py/data_batch_1"),
        ("cifar10", "data_batch_1"),
        ("cifar100", "cifar-100-python/train"),
    ],
)
def test_cifars_pickles_are_refused(tmp_path: Path, name: str, file: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(pickle.dumps(Bomb()))
    sentence = refused(name, tmp_path)
    assert f"{path} is CIFAR's Python version, a pickle" in sentence
    assert "get the binary version" in sentence


@pytest.mark.parametrize("broken", [b"not an image", None, b"truncated"])
def test_a_corrupt_image_is_named_by_its_row(tmp_path: Path, broken: bytes | None) -> None:
    images: list[bytes | None] = [png(image) for image in pictures(20, (32, 32, 3))]
    images[13] = (images[13] or b"")[:200] if broken == b"truncated" else broken
    path = tmp_path / "train.parquet"
    write_parquet(path, {"img": images, "label": [0] * 20})
    write_parquet(tmp_path / "test.parquet", {"img": images[:2], "label": [0] * 2})
    sentence = refused("cifar10", tmp_path)
    assert f"row 13 of {path}" in sentence
    assert ("has no image" if broken is None else "cannot be decoded") in sentence
    assert "<" not in sentence  # of what only Python knows


def test_an_image_of_another_size(tmp_path: Path) -> None:
    images = [*pictures(3, (32, 32, 3)), *pictures(1, (16, 32, 3))]
    for split in ("train", "test"):
        write_parquet(
            tmp_path / f"{split}.parquet", {"img": [png(i) for i in images], "label": [0] * 4}
        )
    sentence = refused("cifar10", tmp_path)
    assert "the image in row 3 of" in sentence
    assert "is 16 x 32 pixels, but those before it are 32 x 32 pixels" in sentence


@pytest.mark.parametrize("label", [10, -1])
def test_a_label_out_of_range_is_named_by_its_row(tmp_path: Path, label: int) -> None:
    write_hub_cifar10(tmp_path)
    path = tmp_path / "test-00000-of-00001.parquet"
    images = [png(image) for image in pictures(5, (32, 32, 3))]
    write_parquet(path, {"img": images, "label": [0, 1, label, 3, 4]})
    assert refused("cifar10", tmp_path) == (
        f"row 2 of {path} has the label {label}, but the labels of cifar10 are 0 to 9"
    )


@pytest.mark.parametrize("labels", [["a", "b"], [0.5, 1.0], [None, 1]], ids=str)
def test_labels_that_are_no_whole_numbers(tmp_path: Path, labels: list[object]) -> None:
    write_hub_cifar10(tmp_path)
    path = tmp_path / "train-00000-of-00001.parquet"
    write_parquet(path, {"img": [png(i) for i in pictures(2, (32, 32, 3))], "label": labels})
    assert f"the column 'label' of {path} must hold whole numbers" in refused("cifar10", tmp_path)


def test_a_missing_column_is_named_with_those_that_are_there(tmp_path: Path) -> None:
    write_hub_cifar10(tmp_path)
    path = tmp_path / "train-00000-of-00001.parquet"
    assert f"{path} has no column 'fine_label': it has img, label" in refused("cifar100", tmp_path)
    write_parquet(path, {"pixels": [1, 2], "label": [1, 2]})
    assert f"{path} has no column 'image': it has pixels, label" in refused("cifar10", tmp_path)


def test_a_column_that_holds_no_images(tmp_path: Path) -> None:
    write_hub_cifar10(tmp_path)
    path = tmp_path / "train-00000-of-00001.parquet"
    write_parquet(path, {"img": [1, 2], "label": [1, 2]})
    assert f"the column 'img' of {path} holds int64 and not encoded images" in refused(
        "cifar10", tmp_path
    )


def test_a_parquet_file_that_is_none(tmp_path: Path) -> None:
    write_hub_cifar10(tmp_path)
    path = tmp_path / "train-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    assert f"{path} cannot be read as Parquet: " in refused("cifar10", tmp_path)


def test_a_parquet_file_with_a_damaged_page(tmp_path: Path) -> None:
    write_hub_cifar10(tmp_path)
    path = tmp_path / "train-00000-of-00001.parquet"
    content = bytearray(path.read_bytes())
    content[4:60] = b"\xff" * 56
    path.write_bytes(content)
    assert f"{path} cannot be read as Parquet: " in refused("cifar10", tmp_path)


def test_a_parquet_file_without_rows(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    write_hub_cifar10(tmp_path)
    path = tmp_path / "train-00000-of-00001.parquet"
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    assert refused("cifar10", tmp_path) == f"{path} has no rows"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\0\0\x08\x03", "is not an IDX file of bytes with 3 dimension(s)"),
        (b"\x89PNG" + bytes(30), "is not an IDX file"),
        (bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2]), "promises 8 bytes of data"),
    ],
)
def test_a_damaged_idx_file(tmp_path: Path, content: bytes, sentence: str) -> None:
    write_mnist(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(content)
    assert f"{tmp_path}/train-images-idx3-ubyte {sentence}" in refused("mnist", tmp_path)


def test_a_gzip_that_is_cut_short(tmp_path: Path) -> None:
    write_mnist(tmp_path, suffix=".gz")
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])
    assert f"{path} cannot be read: " in refused("mnist", tmp_path)


def test_as_many_labels_as_images(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    write_idx(tmp_path / "train-labels-idx1-ubyte", np.arange(39) % 10)
    sentence = refused("mnist", tmp_path)
    assert "train-images-idx3-ubyte holds 40 images, but" in sentence
    assert "train-labels-idx1-ubyte holds 39 labels" in sentence


def test_an_idx_label_out_of_range(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    path = write_idx(tmp_path / "t10k-labels-idx1-ubyte", np.arange(20))
    assert f"row 10 of {path} has the label 10" in refused("mnist", tmp_path)


def test_a_binary_batch_that_is_cut_short(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    path = tmp_path / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:-1])
    assert f"{path} is not a whole number of cifar10 records (3073 bytes each)" in refused(
        "cifar10", tmp_path
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"users": [', "cannot be read as LEAF's JSON"),
        ('{"users": []}', "cannot be read as LEAF's JSON"),
        ('{"user_data": {}}', "holds no samples"),
        ('{"user_data": {"f1": {"x": [[0.5]], "y": [1]}}}', "is not 784 numbers from 0 to 1"),
        (
            json.dumps({"user_data": {"f1": {"x": [[0.5] * 784], "y": [1, 2]}}}),
            "has 1 images but 2 labels",
        ),
        (
            json.dumps({"user_data": {"f1": {"x": [[0.5] * 784], "y": [62]}}}),
            "has the label 62, but the labels of femnist are 0 to 61",
        ),
        (
            json.dumps({"user_data": {"f1": {"x": [[0.5] * 784], "y": [1.7]}}}),
            "has the label 1.7: labels must be whole numbers",
        ),
        (
            json.dumps({"user_data": {"f1": {"x": [[0.5] * 784], "y": [True]}}}),
            "has the label True: labels must be whole numbers",
        ),
        ('{"user_data": {"f1": {"x": [], "y": []}, "f1": {}}}', "'f1' is there more than once"),
        ("[" * 100_000, "cannot be read as LEAF's JSON"),
        ('{"user_data": ' * 50_000, "cannot be read as LEAF's JSON"),
        (
            json.dumps({"user_data": {"f" * 2000: {"x": [[0.5] * 784], "y": [1]}}}),
            "has a name of 2,000 characters, more than 1,000",
        ),
    ],
    ids=range(12),
)
def test_bad_leaf(tmp_path: Path, content: str, sentence: str) -> None:
    write_leaf(tmp_path)
    path = next((tmp_path / "train").iterdir())
    path.write_text(content)
    got = refused("femnist", tmp_path)
    assert str(path) in got
    assert sentence in got


def test_a_leaf_writer_in_two_files_keeps_both_parts(tmp_path: Path) -> None:
    write_leaf(tmp_path, people=2, each=20)
    path = next((tmp_path / "train").iterdir())
    path.with_name("more.json").write_text(path.read_text())
    data = load("femnist", data_dir=tmp_path, clients=2, partition=Natural())
    assert [data.size(client) for client in range(data.clients)] == [40, 40]


def npz(path: Path, **changed: np.ndarray) -> Path:
    arrays = {
        "x_train": np.ones((6, 2)),
        "y_train": np.arange(6) % 3,
        "x_test": np.ones((3, 2)),
        "y_test": np.arange(3),
    }
    np.savez(path, **{**arrays, **changed})  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"y_test": np.array([0, 1, 3])}, "row 2 of y_test in {} has the label 3"),
        ({"y_train": np.array([0, -1, 1, 2, 0, 1])}, "row 1 of y_train in {} has the label -1"),
        ({"y_train": np.zeros(6)}, "y_train in {} must be one whole number for each row"),
        ({"y_train": np.zeros(5, int)}, "y_train in {} must be one whole number for each row"),
        ({"x_test": np.ones((3, 4))}, "{} has training and test points of different shapes"),
        ({"x_train": np.array(["a"] * 6)}, "x_train in {} must hold numbers"),
        (
            {"x_test": np.array([[0, 1], [0, np.nan], [1, 1]])},
            "row 1 of x_test in {} has a value that is not a finite number",
        ),
        ({"x_train": np.ones((6, 2), complex)}, "x_train in {} must hold real numbers"),
        ({"x_train": np.full((6, 2), 1e300)}, "row 0 of x_train in {} has a value that is not"),
        ({"x_train": np.array([Bomb()] * 6)}, "{} cannot be read as an .npz of plain arrays"),
        ({"x_train": np.array(1.0)}, "y_train in {} must be one whole number for each row"),
    ],
    ids=range(11),
)
def test_bad_arrays(tmp_path: Path, changed: dict[str, np.ndarray], sentence: str) -> None:
    path = npz(tmp_path / "mine.npz", **changed)
    assert sentence.format(path) in refused(f"numpy:{path}")


def test_wrong_keys(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, x_train=np.ones((2, 2)), labels=np.ones(2))
    sentence = refused(f"numpy:{path}")
    assert f"{path} has no array y_train, x_test, y_test" in sentence
    assert "it holds x_train, labels" in sentence


def test_no_npz_at_all(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    assert refused(f"numpy:{path}") == f"there is no file {path}: numpy:PATH names an .npz file"
    assert "cannot read the data set" in refused(f"numpy:{'x' * 300}")
    path.write_bytes(b"PK\x03\x04 and no more")
    assert f"{path} cannot be read as an .npz" in refused(f"numpy:{path}")


def test_no_parquet_of_ones_own(tmp_path: Path) -> None:
    assert f"{tmp_path} is neither a Parquet file nor a folder" in refused(f"parquet:{tmp_path}")


def test_ones_own_labels_must_count_from_zero(tmp_path: Path) -> None:
    image = png(pictures(1, (8, 8))[0])
    path = write_parquet(tmp_path / "mine.parquet", {"image": [image] * 2, "label": [1, -2]})
    assert f"row 1 of {path} has the label -2" in refused(f"parquet:{path}")


@pytest.mark.parametrize("classes", [0, 11, [0, 0], [3, 10], []], ids=str)
def test_impossible_classes(classes: int | list[int]) -> None:
    assert "digits has the classes 0 to 9: choose some of them" in refused(
        "digits", classes=classes
    )


def test_impossible_numbers() -> None:
    with pytest.raises(ConfigError, match="at least one client, not 0"):
        load("digits", clients=0)
    with pytest.raises(ConfigError, match="at least one point, not 0"):
        load("digits", per_client=0)


def test_data_errors_are_data_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        load("cifar10", data_dir=tmp_path)

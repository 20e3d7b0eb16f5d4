"""Data that a user has already: arrays, tables, datasets of PyTorch."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from torch.utils.data import TensorDataset

import srpfl
from srpfl.data import Transform, from_arrays, from_datasets, from_frame, from_hub
from srpfl.errors import DataError

from .made_up import write_hub_cifar10

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 4))
Y = (X[:, 0] > 0).astype(np.int64)
WHO = np.repeat(["ann", "bob", "cid"], 20)


def play(data: Any, **more: Any) -> srpfl.Run:
    usual = {
        "model": srpfl.models.MLP(4, (8,), classes=2),
        "algorithm": srpfl.FedRep(),
        "rounds": 2,
    }
    return srpfl.simulate(data=data, **{**usual, **more})


def frame() -> pandas.DataFrame:
    table = pandas.DataFrame(X, columns=list("abcd"))
    return table.assign(who=WHO, kind=np.where(Y > 0, "yes", "no"))


def test_the_same_data_in_three_spellings_are_the_same_run() -> None:
    arrays = play(from_arrays(X, Y, WHO))
    tensors = play(from_arrays(torch.from_numpy(X), torch.from_numpy(Y), WHO))
    table = play(from_frame(frame(), client="who", label="kind", features=list("abcd")))
    for run in (tensors, table):
        assert [p.value for p in run.accuracy] == [p.value for p in arrays.accuracy]


def test_clients_and_classes_keep_their_names() -> None:
    """Who is client 1, and what is class 0? A model that is used elsewhere needs the answer."""
    data = from_frame(frame(), client="who", label="kind")
    assert data.names == ("ann", "bob", "cid")
    assert data.labels == ("no", "yes")
    bobs = {tuple(row) for row in X[20:40].astype(np.float32)}
    assert {tuple(row) for row in data.train(data.names.index("bob")).x} < bobs
    rows = {"user": ["zoe", "ann"] * 5, "label": ["yes", "no"] * 5, "input_ids": [[7], [9]] * 5}
    table = from_datasets(rows, client="user")
    assert (table.names, table.labels) == (("zoe", "ann"), ("no", "yes"))


def test_data_are_shown_in_one_line() -> None:
    assert repr(from_arrays(X, Y, WHO)) == (
        "<Pooled arrays: 3 clients, 48 training samples, 2 classes>"
    )


def test_everybody_is_tested_on_what_is_held_out() -> None:
    data = from_arrays(X, Y, WHO, test=0.25)
    for client in range(3):
        assert len(data.train(client).y) == 15
        rows = {tuple(row) for row in data.train(client).x}
        assert len(data.test(client).y) == 5
        assert not rows & {tuple(row) for row in data.test(client).x}


def test_rows_to_test_on_can_be_named() -> None:
    mark = np.arange(60) % 20 >= 17
    by_array = from_arrays(X, Y, WHO, test=mark)
    by_column = from_frame(frame().assign(held=mark), client="who", label="kind", test="held")
    for data in (by_array, by_column):
        np.testing.assert_array_equal(data.test(1).x, X[37:40].astype(np.float32))
        assert data.train(1).x.shape == (17, 4)


def test_numbers_to_predict_are_for_regression() -> None:
    data = from_frame(frame().drop(columns="kind"), client="who", label="a")
    assert (data.classes, data.task) == (0, "regression")
    model = srpfl.models.MLP(3, (8,), classes=1)
    assert play(data, model=model, task=srpfl.Regression(metric="mae")).metric == "mae"
    assert play(data, model=model).metric == "rmse"  # the task of the data, as for the command


def test_datasets_of_pytorch_one_for_each_client() -> None:
    parts = [TensorDataset(torch.from_numpy(X[who == WHO]).float(), torch.from_numpy(Y[who == WHO]))
             for who in ("ann", "bob", "cid")]  # fmt: skip
    tests = [TensorDataset(*part[:4]) for part in parts]
    data = from_datasets(parts, test=tests)
    assert (data.clients, data.size(2), len(data.test(2).y)) == (3, 20, 4)
    np.testing.assert_allclose(data.train(1).x, X[20:40], rtol=1e-6)
    assert len(play(data).rounds) == 2


def test_a_client_may_have_no_test_samples() -> None:
    data = from_datasets([[(torch.ones(3), 0)]] * 2, test=[[], [(torch.zeros(3), 1)]])
    assert [len(data.test(client).y) for client in (0, 1)] == [0, 1]


def test_images_of_bytes_are_scaled_and_tables_of_bytes_are_not() -> None:
    images = from_arrays(np.zeros((60, 1, 4, 4), np.uint8), Y, WHO)
    tokens = from_arrays(np.zeros((60, 4), np.uint8), Y, WHO)
    assert (images.transform.scale, tokens.transform.scale) == (True, False)
    assert from_arrays(X, Y, WHO, transform=Transform(mean=(1.0,))).transform.mean == (1.0,)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: from_arrays(X, Y[:9], WHO), "x has 60 rows and y has 9"),
        (lambda: from_arrays(X, Y, WHO[:9]), "client has 9"),
        (lambda: from_arrays(X, Y - 1, WHO), "numbered from 0"),
        (lambda: from_arrays(X, Y, WHO, test=2), "fraction of rows"),
        (lambda: from_arrays(X, Y, WHO, test=[True]), "each of the 60 rows"),
        (lambda: from_arrays(X, Y, WHO, test=np.ones(60)), "client ann has no training rows"),
        (lambda: from_arrays(np.array([["a"]]), [0], [0]), "turn texts into numbers"),
        (lambda: from_frame(frame(), client="wo", label="kind"), "no column 'wo'"),
        (lambda: from_frame(frame(), client="kind", label="a"), "column 'who' must hold numbers"),
        (
            lambda: from_frame(frame().assign(a=np.nan), client="who", label="kind"),
            "column 'a' has no number in row 0",
        ),
        (
            lambda: from_frame("my.csv", client="who", label="kind"),
            "not 'my.csv': .*pandas.read_csv",
        ),
        (
            lambda: from_frame(frame(), client="who", label="kind", test="a"),
            "by true or false",
        ),
        (lambda: from_arrays([[1, 2], [1]], [0, 1], [0, 0]), "different lengths"),
        (lambda: from_datasets([]), "at least one sample"),
        (lambda: from_datasets([[(1, 2, 3)]]), r"a pair \(x, y\)"),
        (lambda: from_datasets([[(1, 2)]], test=[]), "1 clients and 0 test"),
        (lambda: from_datasets([[([1, 2], 0), ([1], 0)]]), r"shapes \(1,\) and \(2,\)"),
        (lambda: from_datasets([[([1], 0)], [([1, 2], 0)]]), r"client 1's inputs .* client 0's"),
    ],
)
def test_a_slip_is_a_sentence(make: Any, sentence: str) -> None:
    with pytest.raises(srpfl.SrpflError, match=sentence):
        make()


def test_the_hub_without_a_network_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(srpfl.SrpflError, match=r"Hub \(.+\): check its name and the network, or"):
        from_hub("nobody/nothing")


@pytest.mark.parametrize("inner", ["", "data", "plain_text"])
def test_the_hubs_repositories_have_their_files_in_a_folder_of_any_name(
    inner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / inner).mkdir(exist_ok=True)
    write_hub_cifar10(tmp_path / inner)
    hub = types.SimpleNamespace(snapshot_download=lambda *_, **__: str(tmp_path))
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    pixels = from_hub("uoft-cs/cifar10", clients=4).train_pool.x
    assert pixels.shape == (40, 3, 32, 32)
    next((tmp_path / inner).glob("test*")).unlink()
    assert (
        len(from_hub("some/body", clients=4).train_pool.y) == 30
    )  # one of four of each class less


def test_several_data_sets_in_one_repository_are_named(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_hub_cifar10(tmp_path / name)
    with pytest.raises(DataError, match=r"several data sets, in one, two: name the folder of one"):
        srpfl.data.load(f"parquet:{tmp_path}", clients=4)


@pytest.mark.parametrize("nobody", [None, float("nan"), pandas.NA, pandas.NaT])
def test_a_row_of_nobody_is_not_another_client(nobody: Any) -> None:
    owners = ["a", "a", nobody, "b", "b", "b"]
    with pytest.raises(DataError, match="row 2 has no client"):
        from_arrays(np.ones((6, 2)), [0, 1] * 3, np.array(owners, dtype=object))
    table = pandas.DataFrame({"who": owners, "a": range(6), "kind": [0, 1] * 3})
    with pytest.raises(DataError, match="row 2 has no client"):
        from_frame(table, client="who", label="kind")
    with pytest.raises(DataError, match="row 0 has no client"):
        from_arrays(np.ones((2, 2)), [0, 1], [np.nan, 1.0])
    with pytest.raises(DataError, match="row 1 has no client"):
        from_arrays(np.ones((2, 2)), [0, 1], ["a", nobody])


@pytest.mark.parametrize("nothing", [None, float("nan"), pandas.NA, pandas.NaT])
def test_a_row_without_a_label_is_not_a_class_of_its_own(nothing: Any) -> None:
    labels, column = ["cat", "dog", nothing, "cat"], {"who": list("aabb"), "a": range(4)}
    for given in (labels, np.array(labels, dtype=object), [0.5, 1.5, nothing, 2.5]):
        with pytest.raises(DataError, match="row 2 has no label"):
            from_arrays(np.ones((4, 2)), given, list("aabb"))
    table = pandas.DataFrame(column | {"kind": pandas.Categorical(labels)})
    with pytest.raises(DataError, match="row 2 has no label"):
        from_frame(table, client="who", label="kind")
    with pytest.raises(DataError, match="row 2 has nothing in the column 'label'"):
        from_datasets(column | {"input_ids": [[1]] * 4, "label": labels}, client="who")


def test_masked_values_are_not_taken_for_what_lies_under_the_mask() -> None:
    for x, y, who in ((1, 0, 0), (0, 1, 0), (0, 0, 1)):
        columns = (np.ma.array(np.ones(4, int), mask=[0, 0, 0, masked]) for masked in (x, y, who))
        with pytest.raises(DataError, match="masked values"):
            from_arrays(*columns)


ROWS = {"who": list("aabb"), "input_ids": [[1, 2]] * 4, "label": [0, 1, 0, 1]}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"input_ids": [[1, 2]] * 3 + [None]}, "'input_ids' must hold numbers"),
        ({"input_ids": [[1, 2]] * 3}, "different numbers of rows"),
        ({"input_ids": [[1, 2]] * 3 + [[2**70]]}, "'input_ids' must hold numbers"),
        ({"input_ids": [[[1], [2]]] * 3 + [[[1]]]}, "'input_ids' must hold numbers"),
        ({"label": [0, "cat", 0, 1]}, "'label' holds texts and others"),
        ({"who": ["a", None, "b", "b"]}, "row 1 has nothing in the column 'who'"),
    ],
)
def test_a_bad_table_is_a_sentence(changed: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        from_datasets(ROWS | changed, client="who")


def test_no_row_decides_on_the_numbers_of_others() -> None:
    """An empty text does not make tokens numbers with a point, and whole labels before others do
    not cut those off."""
    data = from_datasets(ROWS | {"input_ids": [[], [1, 2], [3], [4]]}, client="who")
    assert data.train(0).x["input_ids"].dtype == np.int64
    rows = ROWS | {"labels": [[0, 1], [1.7, 2.5], [0, 0], [0, 0]]}
    assert 1.7 in from_datasets(rows, client="who", label="labels").train_pool.y


def test_what_is_no_table_of_columns_is_a_sentence() -> None:
    with pytest.raises(DataError, match="takes a data frame, not \\[1, 2\\]"):
        from_frame([1, 2], client="who", label="kind")
    with pytest.raises(DataError, match="has several columns 'a'"):
        from_frame(pandas.concat([frame(), frame()], axis=1), client="who", label="kind")
    with pytest.raises(DataError, match="one name or number for each row"):
        from_arrays(np.ones((2, 2)), [0, 1], [[0, 1], [0, 1]])
    with pytest.raises(DataError, match="a row for each sample"):
        from_arrays(np.float32(1), [0, 1], [0, 1])

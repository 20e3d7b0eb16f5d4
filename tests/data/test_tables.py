"""School and HAR: whose rows are whose, what is held out, what a model is fed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from srpfl.data import IID, Dirichlet, Natural, Partition, Pooled, Shards, counts, load
from srpfl.errors import ConfigError, DataError, SrpflError

from .made_up import har_columns, school_columns, write_parquet


def school(folder: Path, **options: Any) -> Pooled:
    write_parquet(folder / "school" / "train-00000-of-00001.parquet", school_columns())
    return load("school", data_dir=folder, **options)


def har(folder: Path, **options: Any) -> Pooled:
    write_parquet(folder / "har" / "windows.parquet", har_columns())
    write_parquet(folder / "har" / "features.parquet", har_columns(width=561))
    return load("har", data_dir=folder, **options)


def test_a_client_is_a_school_with_its_pupils_split_as_the_file_says(tmp_path: Path) -> None:
    data = school(tmp_path)
    assert (data.clients, data.classes, data.task) == (3, 0, "regression")
    schools = set()
    for client in range(3):
        train, test = data.train(client).y.astype(int), data.test(client).y.astype(int)
        (number,) = {pupil % 3 for pupil in [*train, *test]}
        schools.add(number)
        assert sorted(test) == [number + 12, number + 27]
        assert len(train) == 8
    assert schools == {0, 1, 2}


def test_scores_are_floats_one_per_pupil(tmp_path: Path) -> None:
    train = school(tmp_path).train(0)
    assert train.x.dtype == train.y.dtype == np.float32
    assert train.x.shape == (8, 28)
    assert train.y.shape == (8,)


def test_only_the_two_per_cents_are_standardised(tmp_path: Path) -> None:
    data = school(tmp_path)
    raw = torch.zeros(1, 28)
    raw[0, 3], raw[0, 4] = 40.964 + 15.157, 22.136 - 6.984
    expected = torch.zeros(1, 28)
    expected[0, 3], expected[0, 4] = 1, -1
    torch.testing.assert_close(data.transform.prepare(raw), expected)
    ones = data.transform.prepare(torch.ones(1, 28))[0]
    assert (torch.cat([ones[:3], ones[5:]]) == 1).all()


def test_schools_are_not_dealt_out_anew(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="school has no classes to deal out: its clients are its"):
        school(tmp_path, partition=IID())
    with pytest.raises(DataError, match="4 clients need as many schools, and 3 have training and"):
        school(tmp_path, clients=4)


@pytest.mark.parametrize(
    ("column", "values", "sentence"),
    [
        ("features", [[1.0] * 28] * 29 + [[1.0] * 27], "row 29 of {} has 27 numbers in 'features'"),
        ("features", ["a"] * 30, "'features' of {} must hold 28 numbers in every row"),
        ("features", [[1.0] * 28] * 29 + [[None] * 28], "'features' of {} must hold 28 numbers"),
        ("score", [1.0] * 28 + [float("nan"), 1.0], "row 28 of {} has a value in 'score' that is"),
        ("score", ["good"] * 30, "'score' of {} must hold a number in every row"),
        ("split", ["train"] * 29 + ["dev"], "row 29 of {} has 'dev' in 'split' and not one of"),
        ("split", ["train"] * 30, "0 have training and test points"),
        ("school", [1.5] * 30, "'school' of {} must hold a name in every row"),
    ],
    ids=range(8),
)
def test_a_bad_table(tmp_path: Path, column: str, values: list[Any], sentence: str) -> None:
    path = write_parquet(tmp_path / "train.parquet", {**school_columns(), column: values})
    with pytest.raises(SrpflError) as caught:
        load("school", data_dir=tmp_path, clients=3)
    assert sentence.format(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_table_in_several_files_is_one(tmp_path: Path) -> None:
    columns = school_columns()
    for number, rows in enumerate((slice(0, 11), slice(11, 30))):
        part = {name: values[rows] for name, values in columns.items()}
        write_parquet(tmp_path / f"train-{number}.parquet", part)
    data = load("school", data_dir=tmp_path)
    assert sum(len(part) for part in [*data.train_parts, *data.test_parts]) == 30


def test_an_empty_table(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = write_parquet(tmp_path / "train.parquet", school_columns())
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    with pytest.raises(DataError, match=f"{path} has no rows"):
        load("school", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("inputs", "shape"), [("windows", (9, 128)), ("features", (561,))], ids=str
)
@pytest.mark.parametrize(("split", "train"), [("blocked", 11), ("random", 12)])
def test_a_client_is_a_person(
    tmp_path: Path, inputs: str, shape: tuple[int, ...], split: str, train: int
) -> None:
    data = har(tmp_path, inputs=inputs, split=split)
    assert (data.clients, data.classes, data.task) == (3, 6, "classification")
    persons = set()
    for client in range(3):
        mine, held = data.train(client), data.test(client)
        assert mine.x.shape == (train, *shape)
        assert (mine.x.dtype, mine.y.dtype) == (np.float32, np.int64)
        rows = mine.x.reshape(train, -1)[:, 0].astype(int)
        tested = held.x.reshape(6, -1)[:, 0].astype(int)
        assert (rows % 18).tolist() == list(range(train))  # so the blocked split leaves out the gap
        assert (tested % 18).tolist() == list(range(12, 18))
        assert (mine.y == rows % 6).all()
        persons.add(*{row // 18 for row in [*rows, *tested]})
    assert persons == {0, 1, 2}


def test_the_splits_do_not_share_a_cache(tmp_path: Path) -> None:
    assert len(har(tmp_path, split="random").train_pool.y) == 36
    assert len(har(tmp_path, split="blocked").train_pool.y) == 33


def test_windows_are_channel_by_channel(tmp_path: Path) -> None:
    data = har(tmp_path)
    row = int(data.train(0).x[0, 0, 0])
    expected = np.array(har_columns()["window"][row], dtype=np.float32)
    assert (data.train(0).x[0, 2] == expected[256:384]).all()


@pytest.mark.parametrize("partition", [Shards(2), Dirichlet(50.0), IID(), Natural()], ids=str)
def test_activities_are_classes_and_can_be_dealt_out(tmp_path: Path, partition: Partition) -> None:
    data = har(tmp_path, clients=3, partition=partition)
    assert counts(data).sum() == 33
    if isinstance(partition, Shards):
        assert ((counts(data) > 0).sum(axis=1) == 2).all()


def test_bad_choices_for_har(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown split of har 'block': did you mean 'blocked'"):
        har(tmp_path, split="block")
    with pytest.raises(ConfigError, match="unknown kind of inputs of har 'raw'"):
        har(tmp_path, inputs="raw")
    with pytest.raises(ConfigError, match="the data set school has no option 'split': it has none"):
        school(tmp_path, split="random")
    (tmp_path / "har" / "features.parquet").unlink()
    with pytest.raises(DataError, match=r"no har in .*: it has no features\*.parquet"):
        load("har", data_dir=tmp_path, inputs="features")
    write_parquet(tmp_path / "har" / "windows.parquet", {**har_columns(), "label": [6] * 54})
    with pytest.raises(DataError, match="has the label 6, but the labels of har are 0 to 5"):
        load("har", data_dir=tmp_path)


def test_the_folder_itself_may_be_given(tmp_path: Path) -> None:
    har(tmp_path)
    assert load("har", data_dir=tmp_path / "har").clients == 3

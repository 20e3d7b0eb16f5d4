"""Rows of Hugging Face's datasets as clients' samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import srpfl
from models.test_lora import Reader, lora
from srpfl.errors import DataError

ROWS: dict[str, list[Any]] = {
    "role": ["b", "a", "b", "a", "b", "a", "b", "a", "b", "b"],
    "label": [0, 1, 2, 0, 1, 2, 0, 1, 2, 0],
    "input_ids": [[5] * (1 + n % 4) + [6] for n in range(10)],
    "text": ["..."] * 10,
}


def test_a_column_says_whose_row_it_is() -> None:
    data = srpfl.data.from_datasets(ROWS, client="role")
    assert [data.size(client) for client in range(data.clients)] == [5, 3]
    rows = np.concatenate([data.train_parts[0], data.test_parts[0]])
    assert {ROWS["role"][row] for row in rows} == {"b"}  # who comes first is the first client
    x = data.train_pool.x
    assert x["input_ids"].shape == (10, 5)
    for row, ids in enumerate(ROWS["input_ids"]):
        assert x["input_ids"][row, : len(ids)].tolist() == ids
        assert x["attention_mask"][row].tolist() == [1] * len(ids) + [0] * (5 - len(ids))
    assert data.classes == 3


def test_rows_for_tests_are_the_clients_own() -> None:
    test = {**ROWS, "input_ids": [[7] * 9] * 10}
    data = srpfl.data.from_datasets(ROWS, test, client="role", padding=1)
    assert [len(data.test(client).y) for client in range(2)] == [6, 4]
    assert data.train(0).x["input_ids"].shape[1] == 9
    assert set(data.train(0).x["input_ids"][:, 8].tolist()) == {1}


def test_labels_of_places_are_padded_by_what_does_not_count() -> None:
    rows = {**ROWS, "labels": ROWS["input_ids"]}
    del rows["label"]
    data = srpfl.data.from_datasets(rows, client="role")
    assert data.task == "next-token"
    assert (data.train_pool.y == -100).sum() == (data.train_pool.x["attention_mask"] == 0).sum()


def test_datasets_go_in_as_they_are() -> None:
    datasets = pytest.importorskip("datasets", reason="needs datasets: pip install 'srpfl[hf]'")
    made = srpfl.data.from_datasets(datasets.Dataset.from_dict(ROWS), client="role")
    plain = srpfl.data.from_datasets(ROWS, client="role")
    for client in range(2):
        assert np.array_equal(made.train(client).y, plain.train(client).y)
        for name, x in plain.train(client).x.items():
            assert np.array_equal(made.train(client).x[name], x)
    with pytest.raises(DataError, match="of a DatasetDict, give the splits"):
        srpfl.data.from_datasets(
            datasets.DatasetDict({"train": datasets.Dataset.from_dict(ROWS)}), client="role"
        )


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ({"role": ["a"], "label": [0], "text": ["hi"]}, "apply the model's tokenizer first"),
        ({"label": [0], "input_ids": [[1]]}, "no column 'role'"),
        ({"role": ["a"], "input_ids": [[1]]}, "no column 'label'"),
        ([1, 2], "must be a datasets.Dataset or a mapping of columns"),
        ({"role": [], "label": [], "input_ids": []}, "there are no rows"),
    ],
)
def test_other_rows_are_refused_in_a_sentence(rows: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        srpfl.data.from_datasets(rows, client="role")


def test_a_batch_is_cut_to_its_longest_text() -> None:
    ids = torch.randint(1, 9, (4, 64))
    mask = (torch.arange(64) < torch.tensor([3, 9, 5, 1])[:, None]).long()
    cut = srpfl.data.Padded().prepare({"input_ids": ids, "attention_mask": mask, "n": ids[:, 0]})
    assert cut["input_ids"].shape == (4, 16)
    assert cut["n"].shape == (4,)
    assert torch.equal(cut["input_ids"], ids[:, :16])
    whole = srpfl.data.Padded().prepare({"input_ids": ids, "attention_mask": torch.ones(4, 64)})
    assert whole["input_ids"].shape == (4, 64)


def test_cutting_changes_no_more_than_rounding_and_engines_agree() -> None:
    rng = np.random.default_rng(0)
    rows = {
        "who": np.repeat(["a", "b", "c"], 10).tolist(),
        "label": rng.integers(3, size=30).tolist(),
        "input_ids": [rng.integers(1, 20, rng.integers(2, 30)).tolist() for _ in range(30)],
    }
    data = srpfl.data.from_datasets(rows, client="who")
    uncut = srpfl.data.Pooled(
        *("uncut", data.train_pool, data.test_pool, data.train_parts, data.test_parts, 3)
    )
    torch.manual_seed(0)
    model = lora(Reader(layers=1), rank=2)
    runs = [
        srpfl.simulate(
            data=given,
            model=model,
            algorithm=srpfl.FedRep(personal=["classifier"], head_epochs=1),
            rounds=1,
            evaluate_every=0,
            engine=engine,
            precision="float64",
        )
        for given, engine in ((uncut, "loop"), (data, "loop"), (data, "vectorised"))
    ]
    for run in runs[1:]:
        for name, value in runs[0].state.shared.items():
            torch.testing.assert_close(run.state.shared[name], value, rtol=1e-9, atol=1e-12)

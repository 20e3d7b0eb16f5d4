"""Data sets with clients of their own, by name: model, task and clients come with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data.made_up import har_columns, school_columns, write_parquet, write_shakespeare
from srpfl.options.config import Config
from srpfl.options.recipes import RECIPES

Run = Callable[..., Any]


@pytest.fixture
def data(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three roles, schools and persons each."""
    monkeypatch.setenv("SRPFL_CACHE", str(here / "cache"))
    monkeypatch.setenv("SRPFL_DATA", str(here / "tables"))
    roles = {f"play/{number}": [f"so says the role {number} once more. " * 60] for number in "abc"}
    write_shakespeare(here / "tables" / "shakespeare", roles)
    write_parquet(here / "tables" / "school" / "train-0.parquet", school_columns())
    write_parquet(here / "tables" / "har" / "windows.parquet", har_columns())
    return here


@pytest.mark.parametrize(
    ("name", "metric", "layer"),
    [("shakespeare", "accuracy", "GRU"), ("school", "rmse", "fc2"), ("har", "accuracy", "Conv1d")],
)
def test_a_data_set_brings_its_model_task_and_clients(
    run: Run, data: Path, name: str, metric: str, layer: str
) -> None:
    result = run("--data", name, "--clients", "3", "--method", "fedrep", "--out", "run")
    assert result["metric"] == metric
    assert sorted(result["participants"][0]) == [0, 1, 2]
    config = json.loads((data / "run" / "config.json").read_text())
    assert layer in config["model"]
    assert config["options"]["partition"] == "natural"
    run("run/config.json", "--out", "again", few=False)
    for records in ("rounds.jsonl", "evaluations.jsonl"):
        assert (data / "run" / records).read_bytes() == (data / "again" / records).read_bytes()


def test_settings_of_data_and_model_reach_them(run: Run, data: Path) -> None:
    three = ("--data", "shakespeare", "--clients", "3", "--set", "data.length=16")
    run(*three, "--set", "model.hidden=8", "--task", "next-token", "--out", "gru")
    assert "GRU(32, 8" in json.loads((data / "gru" / "config.json").read_text())["model"]
    result = run(
        *(*three, "--model", "CharTransformer", "--set", "model.width=8", "--set", "model.heads=2"),
        *("--set", "task.metric=perplexity", "--stop-at", "1000", "--rounds", "9"),
        *("--evaluate-every", "1"),
    )
    assert (result["metric"], result["rounds"]) == ("perplexity", 1)
    assert 1 < result["value"] < 1000


def test_persons_can_be_dealt_out_by_class_too(run: Run, data: Path) -> None:
    result = run("--data", "har", "--clients", "4", "--partition", "shards", "--shards", "3")
    assert result["rounds"] == 2
    many = run("--data", "har", "--clients", "4", fails=True)
    assert "4 clients need as many persons, and 3 have training and test points" in many
    schools = run("--data", "school", "--clients", "3", "--partition", "iid", fails=True)
    assert "school has no classes to deal out" in schools


def test_writer_is_another_name_of_the_natural_partition(run: Run, data: Path) -> None:
    for name in ("writer", "natural"):
        run("--data", "har", "--clients", "3", "--partition", name, "--out", name)
    rounds = [(data / name / "rounds.jsonl").read_bytes() for name in ("writer", "natural")]
    assert rounds[0] == rounds[1]


def test_data_sets_with_clients_of_their_own_keep_them() -> None:
    natural = {name for name in RECIPES if Config(data=name).partition == "natural"}
    assert natural == {"shakespeare", "school", "har"}
    assert Config(data="har", partition="shards").partition == "shards"
    assert {name: Config(data=name).number("clients", 0) for name in natural} == {
        "shakespeare": 100,
        "school": 139,
        "har": 21,
    }

"""A run's config given back, and runs that go on: the same run, and nobody else's code unasked."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import srpfl

Run = Callable[..., Any]

OWN = ("--model", "mine:net", "--algorithm", "mine:Warm", "--set", "warm=1")
RECORDS = ("config.json", "rounds.jsonl", "evaluations.jsonl")


def same(one: Path, other: Path) -> bool:
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in RECORDS)


@pytest.mark.slow
@pytest.mark.parametrize("way", [["--config"], []])
def test_a_runs_config_plays_the_same_run(run: Run, here: Path, way: list[str]) -> None:
    unusual = ("--method", "fedper", "--lr", "0.02", "--clip", "1.0", "--schedule", "2x1,6x1")
    run(*unusual, "--participation", "doubling", "--set", "epochs=2", "--out", "first")
    run(*way, "first/config.json", "--out", "second", few=False)
    assert same(here / "first", here / "second")
    run(*way, "first/config.json", "--seed", "1", "--out", "third", few=False)
    assert not same(here / "first", here / "third")


def test_a_runs_config_runs_nobodys_code_unasked(run: Run, here: Path) -> None:
    run(*OWN, "--out", "first")
    del sys.modules["mine"]
    (here / "mine.py").rename(here / "kept")
    (here / "mine.py").write_text("raise RuntimeError('this was run')\n")
    asked = "names code that is not srpfl's, mine:Warm as its algorithm: it is only run if you say "
    for way in (["--config", "first/config.json"], ["--resume", "first"]):
        said = run(*way, fails=True, few=False)
        assert asked + "--trust, or name it yourself by --algorithm mine:Warm" in said
        assert "mine" not in sys.modules
        # Another module that the user names says nothing of this one.
        assert asked in run(*way, "--clock", "other:Clock", fails=True, few=False)
        assert "this was run" in run(*way, "--trust", fails=True, few=False)
    (here / "kept").rename(here / "mine.py")
    run("--config", "first/config.json", "--trust", "--out", "second", few=False)
    run("--config", "first/config.json", *OWN[2:4], "--out", "third", few=False)
    assert same(here / "first", here / "second")
    assert same(here / "first", here / "third")


@pytest.mark.slow
def test_a_run_with_a_users_own_goes_on(run: Run, here: Path) -> None:
    whole = run(*OWN, "--rounds", "4", "--out", "whole")
    run(*OWN, "--rounds", "4", "--out", "cut")
    for name in ("rounds.jsonl", "evaluations.jsonl"):
        lines = (here / "cut" / name).read_text().splitlines(keepends=True)
        (here / "cut" / name).write_text("".join(x for x in lines if json.loads(x)["round"] <= 2))
    again = run("--resume", "cut", "--trust", few=False)
    assert {**again, "out": ""} == {**whole, "out": ""}
    assert same(here / "whole", here / "cut")
    named = run("--resume", "cut", "--algorithm", "mine:Warm", few=False)
    assert {**named, "out": ""} == {**whole, "out": ""}


@pytest.mark.parametrize(
    "more", [["--algorithm", "mine:OwnRule"], ["--seed", "1"], ["--set", "warm=2"], ["x.toml"]]
)
def test_a_run_goes_on_as_it_was(run: Run, more: list[str]) -> None:
    run(*OWN, "--out", "run")
    said = run("--resume", "run", "--trust", *more, fails=True, few=False)
    assert said == "--resume continues a run as it was: it takes no other options than --rounds"


def test_a_run_of_python_says_why_it_cannot_be_played_by_the_command(run: Run, here: Path) -> None:
    srpfl.simulate(
        data=srpfl.data.load("digits", clients=4),
        model=srpfl.models.MLP(64, (8,), classes=10),
        algorithm=srpfl.FedRep(head_epochs=1),
        rounds=1,
        out=here / "python",
    )
    for way in (["--config", "python/config.json"], ["--resume", "python"]):
        said = run(*way, fails=True, few=False)
        assert "is of a run that was started from Python" in said
        assert said.endswith("play it from Python again")


def test_a_file_that_is_no_config_is_one_sentence(run: Run, here: Path) -> None:
    for text, sentence in (
        ("{", "config.json is not valid JSON"),
        ("[1]", "config.json is not the config of a run"),
        ('{"options": {}}', "config.json is not the config of a run"),
    ):
        (here / "config.json").write_text(text)
        assert sentence in run("config.json", fails=True, few=False)
    assert "cannot read gone.json" in run("gone.json", fails=True, few=False)
    assert "one file of options, not two" in run(
        "a.toml", "--config", "b.toml", fails=True, few=False
    )

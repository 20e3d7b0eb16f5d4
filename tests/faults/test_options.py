"""Whatever the command is told, on its line or in a file: a run, or one sentence."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentence import one_sentence
from srpfl.cli import main
from srpfl.errors import SrpflError
from srpfl.options.config import Config
from srpfl.options.play import play

some = settings(
    max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), database=None
)
NAMES = [each.name for each in dataclasses.fields(Config)]
SMALL = {"clients": 5, "rounds": 1, "evaluate_every": 1, "per_client": 12, "method": "fedper"}
# Work that is asked for is done, however much it is.
WORK = {"rounds", "epochs", "steps", "tuning_epochs", "head_epochs", "body_epochs"}
WORK |= {"head_steps", "body_steps", "per_client"}
ODD: list[Any] = [
    *(True, False, 0, 1, 2, -1, 3, 0.0, 0.5, -0.5, 1.5, 1e-320, 1e-12, float("nan"), float("inf")),
    *(
        "",
        "x",
        "1",
        "nan",
        "fixed",
        "auto",
        "a:b",
        ":",
        "numpy:x",
        "../x",
        "/",
        "5x1",
        "1,2",
        "a\nb",
    ),
    *(
        "FedRep",
        "srpfl",
        "loop",
        "cpu",
        "cuda:99",
        "\0",
        "é\u202e",
        "everyone",
        "mlp",
        "fc3",
        "--x",
    ),
    *([], [1], ["x"], ["mu=1"], ["algorithm.mu=1"], {}, {"algorithm": {"mu": 1}}, {"x": {"y": 1}}),
]
EACH = 3  # values of each option in a trial
HUGE: list[Any] = [10**12, 2**63, 10**30, -(10**30), 1e308, "9" * 400, "x" * 5000, [0] * 2000]


@pytest.fixture(autouse=True)
def here(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(quick_path)
    return quick_path


def taken_or_refused(values: dict[str, Any], folder: Path) -> bool:
    """Whether a run was played; it can be read and gone on with."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        config = Config.of({**SMALL, **values})
        run = play(config, folder)
    except SrpflError as error:
        one_sentence(error)
        return False
    told = json.loads((folder / "config.json").read_text(), parse_constant=pytest.fail)
    again = play(Config.from_run(told, "config.json", {}), folder, resume=True)
    assert again.rounds == run.rounds
    return True


def values_for(name: str) -> list[Any]:
    return ODD if name in WORK else [*ODD, *HUGE]


@pytest.mark.faults
def test_any_value_of_an_option(trial: int, in_memory: Path) -> None:
    """So many of them in a trial, all options in turn."""
    rng = random.Random(trial)
    for name in NAMES:
        for value in rng.sample(values_for(name), EACH):
            taken_or_refused({name: value}, in_memory / "one")


@st.composite
def several(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(NAMES), max_size=5))
    return {name: draw(st.sampled_from(values_for(name))) for name in names}


@given(values=several())
@some
def test_any_values_of_several_options(values: dict[str, Any], in_memory: Path) -> None:
    taken_or_refused(values, in_memory / "several")


def command(*arguments: str) -> int:
    """The command's exit code; an error that it does not catch is raised here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["srpfl", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
    return int(end.value.code or 0)


@contextlib.contextmanager
def said(capsys: pytest.CaptureFixture[str]) -> Iterator[list[str]]:
    capsys.readouterr()
    found: list[str] = []
    yield found
    found.append(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--clients", str(10**12)], "clients"),
        (["--clients", str(10**30)], "clients"),
        (["--data", "digits", "--clients", "100000"], "client"),
        (["--rounds", str(10**12)], "at most 10,000,000 rounds"),
        (["--model", "mlp", "--set", "model.hidden=[100000000,100000000]"], "memory"),
        (["--rate", "nan"], "'rate' must be a finite number, not nan"),
        (["--maml-alpha", "inf"], "'maml_alpha' must be a finite number, not inf"),
        (["--noise", "nan"], "'noise' must be a finite number, not nan"),
        (["--set", "algorithm.batch_size=nan"], "nan"),
    ],
)
def test_options_that_no_machine_can_bear_are_refused_at_once(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with said(capsys) as words:
        assert command("run", *arguments) == 2
    assert sentence in words[0]
    assert words[0].count("\n") == 1


@pytest.mark.parametrize(
    "name", ["[/x]", "[bold]", "a\x1b[2Jb", "a\nb", "../..", "\u202e", "$\\x$"]
)
def test_a_run_can_have_any_name(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--clients", "5", "--rounds", "1", "--per-client", "12", "--method", "fedper"]
    assert command("run", *small, "--name", name) == 0
    told = capsys.readouterr()
    assert "\x1b[2J" not in told.out + told.err
    assert (name if name.isprintable() else name.encode("unicode_escape").decode()) in told.out
    [folder] = (here / "runs").iterdir()
    for way in (["report"], ["compare", "--out", "x"], ["export"], ["doctor"]):
        assert command(*way, str(folder)) == 0
    assert "\x1b[2J" not in capsys.readouterr().out
    assert {path.name for path in here.iterdir()} <= {"runs", "x", "export"}


def test_the_time_in_json_is_the_time_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--clients", "5", "--rounds", "3", "--per-client", "12", "--communication", "10"]
    assert command("run", *small, "--out", "words") == 0
    words = capsys.readouterr().out
    assert command("run", *small, "--out", "json", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert f"time {told['time']:.1f} (C = 10)" in words
    assert told["time"] == pytest.approx(told["computing"] + 30)
    assert told["evaluations"][-1]["time"] == told["time"]


NESTED = "[" * 5000
TOMLS = [
    *(f"rounds = {NESTED}", f"rounds = {NESTED}{']' * 5000}", f"{'[' * 3000}a{']' * 3000}"),
    *("a." * 3000 + "b = 1", "rounds = 1\nrounds = 2", "\ufeffrounds = 1", "rounds = 0x", "= 1"),
    *(
        "[set.algorithm]\nmu = nan",
        "set = 5",
        "lr = inf",
        "rounds = 1979-05-27",
    ),
    *("[[set]]\na = 1", "[set]\nmodel = 5", "seed = 9999999999999999999999999999999999999999999"),
    "seed = " + "9" * 5000,
]


@pytest.mark.parametrize("text", TOMLS)
@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_a_file_that_is_no_file_of_options_is_one_sentence(
    text: str, suffix: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / f"odd.{suffix}").write_text(text)
    with said(capsys) as words:
        assert command("run", f"odd.{suffix}") == 2
    assert words[0].count("\n") == 1
    assert len(words[0]) < 1000


@given(text=st.text(st.sampled_from('[]{}"=.,\n ab1-:\\#'), max_size=60) | st.binary(max_size=60))
@settings(some, max_examples=200)
def test_any_text_is_options_or_one_sentence(text: str | bytes, in_memory: Path) -> None:
    path = in_memory / "any.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        Config.from_file(path, {})
    except SrpflError as error:
        one_sentence(error)

"""srpfl deploy, as far as it starts nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from srpfl.cli import app
from srpfl.errors import ConfigError


def call(*arguments: str) -> BaseException | None:
    return CliRunner().invoke(app, ["deploy", "local", *arguments]).exception


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--nodes", "0"], "there must be a node"),
        (["--nodes", "2", "--slow", "3"], "at most all of them slow"),
        (["--nodes", "2", "--clients", "5"], "every node is one client"),
        (["--method", "fedrap"], "did you mean 'fedrep'"),
    ],
)
def test_a_mistake_is_named_before_anything_is_started(arguments: list[str], text: str) -> None:
    error = call(*arguments)
    assert isinstance(error, ConfigError)
    assert text in str(error)


def test_without_flower_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("flwr", "srpfl.flower"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "flwr", None)
    error = call("--nodes", "2")
    assert isinstance(error, ConfigError)
    assert "pip install 'srpfl[flower]'" in str(error)


def test_help_shows_an_example() -> None:
    result = CliRunner().invoke(app, ["deploy", "local", "--help"])
    assert "srpfl deploy local --nodes 4 --slow 1" in result.output


def test_parts_of_an_earlier_run_are_named_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "run-personal").mkdir()
    error = call("--nodes", "2", "--out", str(tmp_path / "run"))
    assert isinstance(error, ConfigError)
    assert "personal parts of an earlier run" in str(error)


def test_every_operating_command_shows_an_example() -> None:
    for name in ("status", "health", "stop", "resume", "metrics", "gateway", "sign"):
        result = CliRunner().invoke(app, ["deploy", name, "--help"])
        assert f"srpfl deploy {name}" in result.output

"""srpfl deploy, as far as it starts nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from srpfl.cli import app
from srpfl.cli.deploy import ended_in_order
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
        (["--method", "srpfl", "--set", "average=secure"], "a secure sum of 1 answer"),
    ],
)
def test_a_mistake_is_named_before_anything_is_started(arguments: list[str], text: str) -> None:
    error = call(*arguments)
    assert isinstance(error, ConfigError)
    assert text in str(error)


def test_without_flower_the_command_says_what_to_install() -> None:
    code = "import sys; sys.modules['flwr'] = None; from srpfl.cli import main; main()"
    command = [sys.executable, "-c", code, "deploy", "local", "--nodes", "2"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == "srpfl: deployment needs Flower: pip install 'srpfl[flower]'\n"


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


def test_what_is_ignored_as_under_nohup_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ended_in_order():
            signal.raise_signal(signal.SIGHUP)
            with pytest.raises(SystemExit):
                signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)

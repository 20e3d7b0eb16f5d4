"""What the command says of itself, and how quickly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import srpfl as library
from command import srpfl
from srpfl.options.config import Config
from srpfl.runs.run import Run
from srpfl.runs.seal import seal

SMALL = ["--data", "digits", "--clients", "4", "--rounds", "2", "--evaluate-every", "2"]
SMALL += ["--tuning-epochs", "1", "--head-epochs", "1"]
HEAVY = ("torch", "numpy", "sklearn", "matplotlib")


def test_version_and_module_are_the_same_command(tmp_path: Path) -> None:
    done = srpfl("--version", cwd=tmp_path, process=True)  # python -m srpfl
    assert (
        done.stdout == srpfl("--version", cwd=tmp_path).stdout == f"srpfl {library.__version__}\n"
    )


def test_help_does_not_wait_for_pytorch(tmp_path: Path) -> None:
    """Neither that of the command nor that of its largest subcommand; nor does completion."""
    code = (
        "import sys\nfrom srpfl.cli import main\n"
        "try:\n    main()\nfinally:\n"
        f"    print([n for n in {HEAVY} if n in sys.modules], file=sys.stderr)"
    )
    for words in (["--help"], ["run", "--help"], ["--show-completion", "bash"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            # The shell is named: tests may run under none that could be found out.
            env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        )
        assert done.stderr.strip() == "[]", done.stderr
        assert done.stdout


def test_options_are_in_panels_with_their_defaults(tmp_path: Path) -> None:
    told = " ".join(srpfl("run", "--help", cwd=tmp_path).stdout.replace("│", " ").split())
    for panel in ("Method", "Data", "Participation", "Clock", "Local training", "Evaluation"):
        assert f"─ {panel}" in told
    assert "samples per step (default: 10)" in told
    assert "digits: 50" in told


def test_arguments_are_explained(tmp_path: Path) -> None:
    """With every version of typer and click: one pair of them loses these texts."""
    for words, told in {
        ("compare",): "names of methods to run, or folders of runs to read",
        ("deploy", "status"): "the run folder on the server",
    }.items():
        shown = srpfl(*words, "--help", cwd=tmp_path).stdout
        assert told in " ".join(shown.replace("│", " ").split())


def test_a_wrong_command_is_corrected_once(tmp_path: Path) -> None:
    told = srpfl("dmo", cwd=tmp_path, fails=True).stderr
    assert told.count("did you mean 'demo'?") == 1
    told = srpfl("deploy", "locl", cwd=tmp_path, fails=True).stderr
    assert told.count("did you mean 'local'?") == 1


def test_a_command_is_summed_up_in_one_short_sentence(tmp_path: Path) -> None:
    """The list of commands breaks lines where a docstring does, so its first line is all of it."""
    from srpfl.cli import app

    for command in app.registered_commands:
        first, *rest = (command.callback.__doc__ or "").split("\n")
        assert len(first) < 100, first
        assert first.endswith((".", "?")), first
        assert not rest or not rest[0].strip(), first


@pytest.mark.parametrize("width", [60, 80])
def test_help_fits_a_narrow_terminal(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "COLUMNS", str(width))
    for words in ([], ["run"], ["compare"]):
        lines = srpfl(*words, "--help", cwd=tmp_path, fails=False).stdout.splitlines()
        assert max(map(len, lines)) <= width
        assert not any("…" in line for line in lines)


def test_paragraphs_of_help_are_not_broken_where_a_docstring_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "COLUMNS", "160")
    told = srpfl("compare", "--help", cwd=tmp_path).stdout
    assert "Runs that the output folder already holds" in told
    assert "Nothing is reachable from outside, and everything" in (
        srpfl("deploy", "local", "--help", cwd=tmp_path).stdout
    )


def test_auto_is_the_policy_of_that_name_and_its_former_name_still_works(tmp_path: Path) -> None:
    for word, folder in (("auto", "new"), ("adaptive", "old"), ("Auto", "class")):
        done = srpfl("run", *SMALL, "--participation", word, "--out", folder, cwd=tmp_path)
        assert Run.load(tmp_path / folder).config["participation"]["kind"] == "Auto"
        assert ("is now called auto" in done.stderr) == (word == "adaptive")
    srpfl("run", *SMALL, "--method", "srpfl", "--out", "own", cwd=tmp_path)
    assert Run.load(tmp_path / "own").config["participation"]["kind"] == "Doubling"


def test_folders_from_before_the_new_name_mean_what_they_meant(tmp_path: Path) -> None:
    """There, auto was the method's own policy and adaptive was Auto; both go on as they were."""
    for word, wanted, kind in ((None, "auto", "Doubling"), ("auto", "adaptive", "Auto")):
        extra = [] if word is None else ["--participation", word]
        folder = tmp_path / wanted
        srpfl("run", *SMALL, *extra, "--out", wanted, cwd=tmp_path)
        config = json.loads((folder / "config.json").read_text())
        assert config["options"]["participation"] == wanted
        srpfl("run", "--resume", wanted, cwd=tmp_path)
        srpfl("run", f"{wanted}/config.json", "--seed", "1", "--out", f"{wanted}-1", cwd=tmp_path)
        assert Run.load(tmp_path / f"{wanted}-1").config["participation"]["kind"] == kind
        assert Config.from_run(config, "it", {}).participation == word
        del config["sum"]
        (folder / "config.json").write_text(seal(json.dumps(config)))


def test_a_run_is_made_longer_by_the_command(tmp_path: Path) -> None:
    srpfl("run", *SMALL, "--out", "run", cwd=tmp_path)
    srpfl("run", "--resume", "run", "--rounds", "5", cwd=tmp_path)
    again = srpfl("run", "--resume", "run", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["rounds"] == 5
    stages = [record.wait for record in Run.load(tmp_path / "run").rounds]
    srpfl("run", *SMALL, "--rounds", "5", "--every", "1", "--out", "whole", cwd=tmp_path)
    assert stages == [record.wait for record in Run.load(tmp_path / "whole").rounds]


def test_a_trained_model_leaves_the_command_as_a_program(tmp_path: Path) -> None:
    import torch

    srpfl("run", *SMALL, "--participation", "everyone", "--out", "run", cwd=tmp_path)
    srpfl("export", "run", "--model", "3", "--out", "models", cwd=tmp_path)
    program = torch.export.load(tmp_path / "models" / "client-3.pt2").module()
    data = library.data.load("digits", clients=4, partition=library.data.Shards(3), seed=0)
    x, y = data.test(3)
    right = float((program(torch.from_numpy(x)).argmax(1).numpy() == y).mean())
    local = Run.load(tmp_path / "run").curve("local")[-1].clients[3]
    assert right == pytest.approx(local)
    refused = srpfl("export", "run", "--model", "9", cwd=tmp_path, fails=True)
    assert "numbered 0 to 3" in refused.stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*noload.*:DeprecationWarning")  # mlflow's use of sqlalchemy
def test_a_run_is_tracked_by_the_command(tmp_path: Path) -> None:
    words = ["--track", "tensorboard", "--track", "mlflow", "--track-dir", "logs"]
    srpfl("run", *SMALL, *words, "--out", "run", cwd=tmp_path)
    assert list((tmp_path / "logs").glob("srpfl-seed0/events*"))
    assert (tmp_path / "logs" / "mlflow.db").exists()
    refused = srpfl("run", *SMALL, "--track", "tensorbord", cwd=tmp_path, fails=True)
    assert "did you mean 'tensorboard'?" in refused.stderr


LOST = """
import os, signal, sys, time
import srpfl.cli as cli

class Dropped:
    def __del__(self):  # what is raised here is told and forgotten
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)

def app():
    Dropped()
    print("goes on", flush=True)
    time.sleep(60)

cli.app, cli.AGAIN = app, 1
signal.signal(signal.SIGINT, signal.default_int_handler)
cli.main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs alarms")
def test_a_lost_ctrl_c_comes_again() -> None:
    told = [sys.executable, "-c", LOST]
    done = subprocess.run(told, capture_output=True, text=True, timeout=30)
    assert done.stdout == "goes on\n"
    assert done.returncode == 130
    assert done.stderr.endswith("srpfl: stopped\n")

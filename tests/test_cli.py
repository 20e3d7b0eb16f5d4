"""The command, as a user meets it."""

from __future__ import annotations

import csv
import errno
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from command import srpfl
from srpfl.cli import main
from srpfl.engine.vectorised import VectorisedEngine
from srpfl.options.methods import METHODS
from srpfl.runs import files
from srpfl.runs.seal import seal

USUAL = ["--data", "digits", "--clients", "8", "--rounds", "2", "--evaluate-every", "2"]
SMALL = [*USUAL, "--per-client", "20"]


# FedBN keeps layers of normalisation, which the usual model has none of.
NORMALISED = """
from torch import nn

def net():
    return nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10))
"""


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_by_its_name(method: str, tmp_path: Path) -> None:
    (tmp_path / "normalised.py").write_text(NORMALISED)
    model = ("--model", "normalised:net") if method == "fedbn" else ()
    words = ("run", "--method", method, *SMALL, *model, "--out", "run", "--json")
    done = srpfl(*words, cwd=tmp_path)
    result = json.loads(done.stdout)
    assert result["method"] == method
    assert (result["seed"], result["rounds"]) == (0, 2)
    assert 0 <= result["accuracy"] <= 1
    assert result["time"] > 0
    assert len(result["participants"]) == 2
    assert (result["metric"], result["value"]) == ("accuracy", result["accuracy"])
    assert result["kind"] == METHODS[method].algorithm.headline
    assert (tmp_path / "run" / "rounds.jsonl").exists()


def test_a_file_of_options_is_the_command_line_in_another_spelling(tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text(
        'method = "fedper"\nclients = 8\nrounds = 5\nevaluate-every = 2\n'
        "per-client = 20\nlr = 0.02\n"
    )
    srpfl("run", "experiment.toml", "--rounds", "2", "--out", "file", cwd=tmp_path)
    srpfl("run", "--method", "fedper", *SMALL, "--lr", "0.02", "--out", "line", cwd=tmp_path)
    for name in ("config.json", "rounds.jsonl", "evaluations.jsonl"):
        assert (tmp_path / "file" / name).read_bytes() == (tmp_path / "line" / name).read_bytes()


def test_resume_of_a_finished_run_trains_nothing_and_says_the_same(tmp_path: Path) -> None:
    first = srpfl("run", *SMALL, "--out", "run", "--json", cwd=tmp_path)
    before = (tmp_path / "run" / "timing.jsonl").read_bytes()
    second = srpfl("run", "--resume", "run", "--json", cwd=tmp_path)
    assert json.loads(first.stdout) == json.loads(second.stdout)
    assert (tmp_path / "run" / "timing.jsonl").read_bytes() == before


def test_a_stopped_run_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a run"

    def stop(self: VectorisedEngine, *_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(VectorisedEngine, "train", stop)
    monkeypatch.setattr("sys.argv", ["srpfl", "run", "--rounds", "2", "--out", str(out)])
    monkeypatch.setattr("signal.signal", lambda *_: None)  # Ctrl-C is for the tests after this one
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130
    said = capsys.readouterr().err
    assert said.endswith(f"continue with: srpfl run --resume '{out}'\nsrpfl: stopped\n")
    monkeypatch.undo()
    srpfl("run", "--resume", str(out), cwd=tmp_path)


def test_compare_runs_methods_once_and_draws_them(tmp_path: Path) -> None:
    arguments = ["compare", "fedrep", "srpfl", *SMALL, "--seeds", "2", "--out", "both", "--json"]
    result = json.loads(srpfl(*arguments, cwd=tmp_path).stdout)
    assert [row["method"] for row in result["rows"]] == ["fedrep", "srpfl"]
    assert [row["seeds"] for row in result["rows"]] == [[0, 1], [0, 1]]
    assert (tmp_path / result["plot"]).read_bytes().startswith(b"\x89PNG")
    assert result["baseline"] == "fedrep"
    again = srpfl(*arguments, cwd=tmp_path)
    assert json.loads(again.stdout) == result
    timing = (tmp_path / "both" / "srpfl-seed0" / "timing.jsonl").read_text()
    assert len(timing.splitlines()) == 2
    one = ("compare", "both/fedrep-seed0", "both/srpfl-seed0")
    folders = srpfl(*one, "--out", "both", cwd=tmp_path)
    assert "speed-up over fedrep" in folders.stdout
    assert "next: srpfl report both/fedrep-seed0 both/srpfl-seed0 --open" in folders.stdout
    # Another comparison does not write over the picture of the first.
    assert len(list((tmp_path / "both").glob("*.png"))) == 2
    unknown = srpfl(*one, "--baseline", "fedprox", cwd=tmp_path, fails=True)
    assert "unknown baseline 'fedprox'" in unknown.stderr
    nowhere = srpfl("compare", "both/nothing", cwd=tmp_path, fails=True)
    assert nowhere.stderr.startswith("srpfl: both/nothing holds no run")


def test_compare_keeps_runs_of_one_method_apart_that_differ_in_more_than_the_seed(
    tmp_path: Path,
) -> None:
    run = ("run", "--method", "fedper", *SMALL, "--out")
    srpfl(*run, "one", cwd=tmp_path)
    srpfl(*run, "two", "--epochs", "2", cwd=tmp_path)
    auto = ("--participation", "auto", "--communication", "10")
    srpfl(*run, "three", *auto, cwd=tmp_path)
    (tmp_path / "fedper").mkdir()  # a folder called like a method is no run
    done = srpfl("compare", "one", "two", "three", "--json", cwd=tmp_path)
    rows = json.loads(done.stdout)["rows"]
    assert [row["method"] for row in rows] == [
        "fedper (Everyone, epochs 1)",
        "fedper (Everyone, epochs 2)",
        "fedper (Auto)",
    ]
    assert list(rows[0]["time_to_target"]) == ["0.0", "10.0", "100.0"]
    assert list(rows[2]["time_to_target"]) == ["10.0"]  # it would have decided otherwise
    assert "n/a" in srpfl("compare", "one", "three", cwd=tmp_path).stdout


def test_a_schedule_of_the_learning_rate_is_an_option(tmp_path: Path) -> None:
    given = ("--lr", "0.1", "--lr-cosine", "50", "--lr-warmup", "3")
    srpfl("run", "--method", "fedavg", *SMALL, *given, "--out", "run", cwd=tmp_path)
    rule = json.loads((tmp_path / "run" / "config.json").read_text())["algorithm"]["rule"]
    assert (rule["cosine"], rule["warmup"], rule["rule"]["lr"]) == (50, 3, 0.1)


def test_a_run_without_a_folder_gets_one(tmp_path: Path) -> None:
    for expected in ("srpfl-digits-seed0", "srpfl-digits-seed0-2"):
        done = srpfl("run", *SMALL, cwd=tmp_path)
        assert (tmp_path / "runs" / expected / "config.json").exists()
        assert f"runs/{expected}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--method", "fedrap"], "unknown method 'fedrap': did you mean 'fedrep'?"),
        (["--data", "digit"], "did you mean 'digits'?"),
        (["--metod", "fedrep"], "No such option"),
        (["--start", "51"], "waits for 51 clients but only 50 are asked"),
        (["--shards", "11"], "11"),
        (["--lr", "nan"], "'lr' must be a finite number"),
        (["--lr", "1e9", "--clients", "8"], "in round 1: lower the learning rate"),
        (["--personal", "fc9"], "the model has no part named 'fc9'"),
        (["--personal", "fc1,fc2,fc3"], "makes everything personal"),
        (["--clock", "sundial"], "unknown clock 'sundial'"),
        (["--clock", "devices"], "needs a file of device speeds"),
        (["--participation", "flanp-rule", "--clock", "dynamic"], "changes their speeds"),
        (["--participation", "flanp-rule", "--sample", "0.5"], "only 25 of 50"),
        (["--schedule", "5-10"], "write stages as CLIENTSxROUNDS"),
        (["--rounds", "0"], "at least one round"),
        (["--clients", "100000"], "client"),
        (["missing.toml"], "cannot read missing.toml"),
        (["--resume", "nowhere"], "nowhere holds no run"),
        (["--precision", "float7"], "float7"),
        (["--evaluations", "global"], "has no global accuracy"),
        (["--lr", "-1"], "learning rate must be a positive, finite number"),
        (["--tuning-epochs", "-1"], "zero or more"),
        (["--device", "meta"], "unknown device 'meta'"),
        (["--rate", "1e-320"], "rate of a clock must be a positive number"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    done = srpfl("run", *arguments, cwd=tmp_path, fails=True)
    text = " ".join(done.stderr.replace("│", " ").split())
    assert sentence in text
    assert done.stdout == ""


def test_a_wrong_name_in_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "typo.toml").write_text("ruonds = 3\n")
    done = srpfl("run", "typo.toml", cwd=tmp_path, fails=True)
    assert "unknown option in typo.toml 'ruonds': did you mean 'rounds'?" in done.stderr
    (tmp_path / "type.toml").write_text('rounds = "three"\n')
    done = srpfl("run", "type.toml", cwd=tmp_path, fails=True)
    assert "option 'rounds' in type.toml must be of type int" in done.stderr


def test_a_file_may_write_lists_as_lists(tmp_path: Path) -> None:
    (tmp_path / "lists.toml").write_text(
        'clients = 8\nrounds = 3\nevaluate-at = [1, 3]\npersonal = ["fc2", "fc3"]\n'
        "schedule = [[2, 1], [8, 1]]\n"
    )
    done = srpfl("run", "lists.toml", "--out", "run", "--json", cwd=tmp_path)
    result = json.loads(done.stdout)
    assert [len(who) for who in result["participants"]] == [2, 8, 8]
    assert {entry["round"] for entry in result["evaluations"]} == {1, 3}


@pytest.mark.parametrize("command", ["compare", "report"])
def test_a_target_that_is_no_fraction_is_one_sentence(command: str, tmp_path: Path) -> None:
    srpfl("run", *SMALL, "--out", "run", cwd=tmp_path)
    for target in ("nan", "-1", "5"):
        done = srpfl(command, "run", "--target", target, cwd=tmp_path, fails=True)
        assert "the target is a fraction above 0 and at most 1" in done.stderr


def test_a_cost_that_is_no_number_is_one_sentence(tmp_path: Path) -> None:
    done = srpfl("compare", "--costs", "0,nan", cwd=tmp_path, fails=True)
    assert "cost of communication must be zero or a positive number" in done.stderr


def test_an_unwritable_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = srpfl("run", *SMALL, "--out", "file/run", cwd=tmp_path, fails=True)
    assert "cannot write to file/run" in done.stderr


def test_what_cannot_be_exported_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    srpfl("run", *SMALL, "--out", "run", cwd=tmp_path)
    (tmp_path / "file").write_text("")
    done = srpfl("export", "run", "--model", "0", "--out", "file", cwd=tmp_path, fails=True)
    assert "cannot write to file: File exists" in done.stderr

    def full(draft: Path, data: bytes) -> None:
        draft.write_bytes(data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "fill_draft", full)
        done = srpfl("export", "run", "--model", "0", "--out", "models", cwd=tmp_path, fails=True)
    assert "cannot write to models: No space left on device" in done.stderr
    assert list((tmp_path / "models").iterdir()) == []

    def half(writer: csv.DictWriter[str], rows: Iterable[Any]) -> None:
        for row in rows:
            writer.writerow(row)
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(csv.DictWriter, "writerows", half)
    done = srpfl("export", "run", "--out", "tables", cwd=tmp_path, fails=True)
    assert "cannot write to tables: No space left on device" in done.stderr
    assert list((tmp_path / "tables").iterdir()) == []


def test_every_command_has_help_with_an_example(tmp_path: Path) -> None:
    from srpfl.cli import COMMANDS

    for name in (name for names in COMMANDS.values() for name in names):
        assert f"srpfl {name}" in srpfl(name, "--help", cwd=tmp_path).stdout


def test_reproduce_trains_runs_together(tmp_path: Path) -> None:
    which = ["reproduce", "fig3", "--dataset", "digits", "--methods", "fedrep,srpfl"]
    which += ["--rounds", "2", "--clients", "8", "--engine", "vectorised", "--device", "cpu"]
    done = srpfl(*which, "--together", "2", cwd=tmp_path)
    assert done.stdout.startswith("trained 2 runs")
    refused = srpfl(*which, "--together", "0", cwd=tmp_path, fails=True)
    assert refused.stderr.strip() == "srpfl: at least one run is trained at a time, not 0"


def test_a_client_keeps_at_most_so_many_points(tmp_path: Path) -> None:
    srpfl("run", *SMALL, "--out", "few", cwd=tmp_path)
    dealt = json.loads((tmp_path / "few" / "partition.json").read_text())
    assert [sum(client) for client in dealt] == [20] * 8


def test_a_run_that_is_older_than_an_option_goes_on(tmp_path: Path) -> None:
    srpfl("run", *USUAL, "--out", "run", cwd=tmp_path)
    whole = (tmp_path / "run" / "rounds.jsonl").read_bytes()
    file = tmp_path / "run" / "config.json"
    config = json.loads(file.read_text())
    del config["options"]["per_client"], config["sum"]  # which is newer still
    file.write_text(seal(json.dumps(config)))
    srpfl("run", "--resume", "run", cwd=tmp_path)
    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == whole

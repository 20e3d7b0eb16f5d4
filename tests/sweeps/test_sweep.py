"""Sweeps: every run once, whatever is killed; what is there already is left alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from multiprocessing.spawn import get_preparation_data
from pathlib import Path
from typing import Any

import pytest

import srpfl
from srpfl.errors import ConfigError, RunFolderError
from srpfl.options.config import Config
from srpfl.options.play import play as play_alone
from srpfl.report import write_report
from srpfl.runs.doctor import examine
from srpfl.sweeps import places
from srpfl.sweeps.live import shown
from srpfl.sweeps.plan import planned
from srpfl.sweeps.playing import play, shares_of

COMMON = {"clients": 5, "rounds": 4, "model": "mlp", "per_client": 20, "evaluate_every": 2}
GRID = {"method": ["fedavg", "fedrep", "srpfl"], "seed": [0, 1]}


def records_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("[re]*.jsonl")}


def records(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in ("rounds.jsonl", "evaluations.jsonl")]


def test_every_combination_is_played_once_and_what_is_there_is_left_alone(tmp_path: Path) -> None:
    choices: Any = {"grid": GRID, "common": COMMON, "out": tmp_path / "runs", "on": "turn"}
    done = srpfl.sweep(**choices)
    assert done.complete
    assert [row.varied for row in done.rows] == [
        {"method": method, "seed": seed} for method in GRID["method"] for seed in GRID["seed"]
    ]
    assert [row.method for row in done.compare().rows] == GRID["method"]
    table = done.to_pandas()
    assert (table["state"] == "done").all()
    assert table["value"].tolist() == [run.scores[-1].value for run in done.runs]
    page = write_report(done.runs, tmp_path / "report.html")
    assert page.stat().st_size > 0
    before = {row.folder: os.stat(row.folder / "timing.jsonl").st_mtime_ns for row in done.rows}
    srpfl.sweep(**{**choices, "grid": {**GRID, "seed": [0, 1, 2]}})
    for folder, when in before.items():
        assert os.stat(folder / "timing.jsonl").st_mtime_ns == when
    assert len(list((tmp_path / "runs").iterdir())) == 9


def test_a_run_of_a_sweep_is_the_run_alone(tmp_path: Path) -> None:
    done = srpfl.sweep(grid=GRID, common=COMMON, out=tmp_path / "runs", on="turn", together=2)
    for row in done.rows:
        play_alone(Config.of({**COMMON, **row.varied}), tmp_path / "alone" / row.folder.name)
        assert records(row.folder) == records(tmp_path / "alone" / row.folder.name)


def test_runs_of_one_algorithm_share_a_worker_in_the_order_of_the_plan(tmp_path: Path) -> None:
    methods = ["fedavg", "fedrep", "flanp", "srpfl"]
    plan = [run for seed in (0, 1) for run in planned(tmp_path, grid={"method": methods},
            runs=[{"seed": seed}])]  # fmt: skip
    shares = [[run.folder.name for run in share] for share in shares_of(plan, 3)]
    assert shares == [
        ["fedavg-seed0", "flanp-seed0", "fedavg-seed1"],
        ["fedrep-seed0", "srpfl-seed0", "fedrep-seed1"],
        ["flanp-seed1"],
        ["srpfl-seed1"],
    ]
    assert [share[0] for share in shares_of(plan, 1)] == plan


@pytest.mark.parametrize("lost", ["evaluation", "checkpoint", "the end of a removal"])
def test_a_run_killed_after_its_last_round_is_not_taken_for_done(lost: str, tmp_path: Path) -> None:
    """The record of a round is written first, then its state, then its evaluations; an older state
    is removed by another name."""
    every = 2 if lost == "evaluation" else 0
    common = {**COMMON, "evaluate_every": every}
    done = srpfl.sweep(grid={"seed": [0]}, common=common, out=tmp_path, on="turn")
    folder = done.rows[0].folder
    before, file = records_of(folder), folder / "evaluations.jsonl"
    if lost == "evaluation":
        file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    elif lost == "checkpoint":
        shutil.rmtree(folder / "checkpoints" / "000004")
    else:
        (folder / "checkpoints" / "000003").rename(folder / "checkpoints" / ".000003.4321")
    [planned_run] = planned(tmp_path, grid={"seed": [0]}, common=common)
    assert planned_run.state() == "begun"
    assert srpfl.sweep(grid={"seed": [0]}, common=common, out=tmp_path, on="turn").complete
    assert records_of(folder) == before
    assert planned_run.state() == "done"
    assert examine(folder).whole


def test_a_run_killed_at_its_very_beginning_is_played_once_and_done(tmp_path: Path) -> None:
    [run] = planned(tmp_path, grid={"seed": [0]}, common=COMMON)
    run.folder.mkdir()
    for name in (".partition.json.4321", ".config.json.4321", "..worker.4321"):
        (run.folder / name).write_text("{")
    assert srpfl.sweep(grid={"seed": [0]}, common=COMMON, out=tmp_path, on="turn").complete
    assert examine(run.folder).whole
    assert not (run.folder / "..worker.4321").exists()


@pytest.mark.parametrize("dropped", [True, False])
def test_a_run_without_weights_is_done_if_they_were_dropped(dropped: bool, tmp_path: Path) -> None:
    """Killed between its only round and the first state, it looks the same but for the time."""
    choices: Any = {"grid": {"seed": [0]}, "common": {**COMMON, "rounds": 1, "evaluate_every": 0}}
    srpfl.sweep(**choices, out=tmp_path, on="turn")
    [run] = planned(tmp_path, **choices)
    shutil.rmtree(run.folder / "checkpoints")
    if not dropped:
        (run.folder / "timing.jsonl").unlink()
    assert run.state() == ("done" if dropped else "begun")
    assert srpfl.sweep(**choices, out=tmp_path, on="turn").complete
    assert (run.folder / "checkpoints" / "000001").exists() != dropped


def test_after_the_deadline_no_run_is_begun(tmp_path: Path) -> None:
    plan = planned(tmp_path, grid=GRID, common=COMMON)
    for on in ("turn", "processes"):
        done = play(plan, tmp_path, on=on, deadline=0.0)
        assert {row.state for row in done.rows} == {"waiting"}


def test_workers_read_the_users_script_only_for_its_own_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a script without ``if __name__ == "__main__":`` would begin its sweep again in each."""
    script = sys.modules["__main__"]
    monkeypatch.setattr(script, "__file__", str(tmp_path / "mine.py"), raising=False)
    monkeypatch.setattr(script, "__spec__", None)
    own = {"algorithm": "__main__:Mine"}
    for common, read in ((COMMON, False), ({**COMMON, **own}, True)):
        with places._without_script(planned(tmp_path, grid={"seed": [0]}, common=common)):
            assert ("init_main_from_path" in get_preparation_data("a worker")) == read
    assert script.__file__ == str(tmp_path / "mine.py")


def test_a_table_says_what_is_played_where_while_it_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "GLANCE", 0.01)
    tables: list[Any] = []
    look = shown(lambda table, refresh: tables.append(table))
    plan = planned(tmp_path, grid={"seed": [0]}, common={**COMMON, "rounds": 30})
    assert play(plan, tmp_path, on="turn", watch=look).complete
    busy = [table for table in tables if table.row_count]
    assert busy
    assert list(busy[0].columns[0].cells) == ["seed0"]
    assert f"process {os.getpid()}" in next(iter(busy[-1].columns[2].cells))
    assert "left" in str(busy[-1].title)


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    done = srpfl.sweep(
        runs=[{"lr": 0.01}, {"lr": -1.0}, {"lr": 1e9}], common=COMMON, out=tmp_path, on="turn"
    )
    assert [row.state for row in done.rows][:2] == ["done", "failed"]
    assert "learning rate" in str(done.rows[1].error)
    assert done.rows[2].state in ("diverged", "done")
    assert len(done.runs) >= 1


@pytest.mark.parametrize(
    ("choices", "told"),
    [
        ({"grid": {"method": "fedrep"}}, "a list of values"),
        ({"grid": {}}, "at least one run"),
        ({"grid": {"colour": ["red"]}}, "colour"),
        ({"runs": [{"seed": 0}, {"seed": 0}]}, "two runs"),
        ({"grid": GRID, "on": "moon"}, "moon"),
        ({"grid": GRID, "workers": 0}, "at least 1"),
        ({"grid": {"seed": range(400), "rounds": range(1, 400)}}, "more than a sweep can have"),
        ({"grid": {"seed": [0]}, "runs": [{"seed": 5}]}, "both the grid and a run .* 'seed'"),
    ],
)
def test_mistakes_are_sentences(choices: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=told):
        srpfl.sweep(**choices, out=tmp_path)


@pytest.mark.parametrize("part", ["common = 3", "grid = 3", "runs = 'all'", "out = 3", "[out]"])
def test_a_part_of_a_study_that_is_something_else_is_a_sentence(part: str, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(part)
    with pytest.raises(ConfigError, match=r"study\.toml must be a"):
        srpfl.sweep(study, out=tmp_path / "runs")


def test_a_folder_with_another_run_is_refused(tmp_path: Path) -> None:
    choices: Any = {"grid": {"seed": [0]}, "out": tmp_path, "on": "turn"}
    srpfl.sweep(common=COMMON, **choices)
    with pytest.raises(RunFolderError, match="holds another run"):
        srpfl.sweep(common={**COMMON, "lr": 0.5}, **choices)


STUDY = """
[common]
clients = 5
per_client = 20
rounds = {rounds}
model = "mlp"
evaluate_every = 5

[grid]
method = ["fedavg", "fedrep", "srpfl"]
seed = {seeds}
lr = {rates}
"""
COMMAND = [sys.executable, "-c", "import srpfl.cli; srpfl.cli.main()", "sweep"]


@pytest.mark.slow
def test_killed_three_times_a_sweep_of_sixty_runs_ends_with_every_run_whole(tmp_path: Path) -> None:
    """The sweep itself and all its workers at once, by kill -9."""
    study, out, rates = tmp_path / "study.toml", tmp_path / "runs", [0.005, 0.01, 0.02, 0.05]
    study.write_text(STUDY.format(rounds=5, seeds=[0, 1, 2, 3, 4], rates=rates))
    told = [*COMMAND, str(study), "--out", str(out), "--json"]
    for kill in range(3):
        process = subprocess.Popen(told, stdout=subprocess.DEVNULL, start_new_session=True)
        limit = time.monotonic() + 300
        while rounds_in(out) < 70 * (kill + 1) and time.monotonic() < limit:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=10)
        assert 70 * (kill + 1) <= rounds_in(out) < 300
    done = subprocess.run(told, capture_output=True, text=True, timeout=600)
    table = json.loads(done.stdout)
    assert table["complete"], done.stderr
    assert len(table["runs"]) == len(list(out.iterdir())) == 60
    for row in table["runs"]:
        folder = Path(row["folder"])
        assert (row["state"], examine(folder).whole) == ("done", True)
        assert [record.round for record in srpfl.Run.load(folder).rounds] == [1, 2, 3, 4, 5]
        # What took how long is written when a round is saved: none of these was played again.
        played = [json.loads(line)["round"] for line in lines_of(folder)]
        assert len(played) == len(set(played))
    swept = srpfl.sweep(study, out=out)  # nothing is left to play
    frame = swept.to_pandas()
    assert frame.groupby(["method", "lr"]).size().tolist() == [5] * 12
    assert frame["value"].tolist() == [run.scores[-1].value for run in swept.runs]
    for row in swept.rows[::20]:  # as if nobody had been killed
        common = {"clients": 5, "per_client": 20, "rounds": 5, "model": "mlp", "evaluate_every": 5}
        play_alone(Config.of({**common, **row.varied}), tmp_path / "alone" / row.folder.name)
        assert records(row.folder) == records(tmp_path / "alone" / row.folder.name)
    rows = swept.compare().rows  # a row for each method and rate, over all its seeds
    assert [row.seeds for row in rows] == [[0, 1, 2, 3, 4]] * 12
    page = write_report(swept.runs, tmp_path / "report.html").read_text()
    assert all(method in page for method in ("fedavg", "fedrep", "srpfl"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray has many of its own
def test_a_sweep_on_ray_is_that_in_turn_also_if_a_worker_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    study = tmp_path / "study.toml"
    study.write_text(STUDY.format(rounds=8, seeds=[0], rates=[0.01, 0.02]))
    told = [*COMMAND, str(study), "--json", "--workers", "2"]
    out = tmp_path / "ray"
    process = subprocess.Popen(
        [*told, "--out", str(out), "--on", "ray"], stdout=subprocess.PIPE, text=True
    )
    limit = time.monotonic() + 120
    while rounds_in(out) < 4 and time.monotonic() < limit and process.poll() is None:
        time.sleep(0.02)
    os.kill(int(next(out.rglob(".worker")).read_text().split()[1]), signal.SIGKILL)
    said, _ = process.communicate(timeout=200)
    assert said.startswith("{"), said  # and nothing of Ray's
    assert json.loads(said)["complete"]
    turn = srpfl.sweep(study, out=tmp_path / "turn", on="turn")
    for row in turn.rows:
        assert records(row.folder) == records(out / row.folder.name)


def lines_of(folder: Path) -> list[str]:
    return (folder / "timing.jsonl").read_text().splitlines()


def rounds_in(out: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in out.glob("*/rounds.jsonl"))


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_workers_end_with_the_sweep(tmp_path: Path) -> None:
    study, out = tmp_path / "study.toml", tmp_path / "runs"
    study.write_text(STUDY.format(rounds=40, seeds=[0], rates=[0.01, 0.02]))
    told = [*COMMAND, str(study), "--out", str(out), "--json"]
    process = subprocess.Popen([*told, "--workers", "1"], stdout=subprocess.PIPE, text=True)
    limit = time.monotonic() + 60
    while rounds_in(out) < 10 and time.monotonic() < limit:
        time.sleep(0.05)
    worker = int(next(out.rglob(".worker")).read_text().split()[1])
    os.kill(worker, signal.SIGKILL)
    said, _ = process.communicate(timeout=120)
    assert json.loads(said)["complete"]
    pids = {int(path.read_text().split()[1]) for path in out.rglob(".worker")}
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)

"""The study plays what is missing, once, and its runs are those of the library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from srpfl import linear
from srpfl.clock import DynamicExponential
from srpfl.errors import RunFolderError
from srpfl.participation import Auto, Everyone
from srpfl.runs.seal import seal
from srpfl.studies import auto_linear, auto_networks, auto_plots
from srpfl.studies.auto import main, write_cells


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_linear, "ROUNDS", 60)


@pytest.mark.usefixtures("short")
def test_played_side_by_side_or_alone_a_run_is_the_same() -> None:
    rows = auto_linear.compare(32, 5, ["dynamic"], [1.0])
    problem = linear.Problem(clients=32, dim=20, rank=2, samples=20, noise=1.0, seed=5)
    alone = {
        "fedrep": Everyone(),
        "auto": Auto(start=2),
    }
    for row in rows:
        if row.method in alone:
            cost = row.communication or 0.0
            run = linear.run(
                problem,
                participation=alone[row.method],
                clock=DynamicExponential(communication=cost),
                eta=0.1,
                rounds=60,
            )
            assert row.floor == pytest.approx(run.floor, rel=1e-9)
            assert [n for n, rounds in row.waits for _ in range(rounds)] == list(run.participants)
            floor = next(other.floor for other in rows if other.method == "fedrep")
            time = run.time_to(4 * floor, 1.0)
            assert row.time_to(4.0, 1.0) == pytest.approx(time if time else float("inf"))


@pytest.mark.usefixtures("short")
def test_a_stopped_study_goes_on_and_is_summed_up_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "linear.jsonl"
    clocks = ["fixed", "dynamic"]
    settings = {"clocks": clocks, "clients": [32], "communications": [0.0, 100.0]}
    first = auto_linear.study(file, seeds=[0], **settings)  # type: ignore[arg-type]
    played = []
    whole = auto_linear.compare
    monkeypatch.setattr(auto_linear, "compare", lambda *a: played.append(a[1]) or whole(*a))
    rows = auto_linear.study(file, seeds=[0, 1], **settings)  # type: ignore[arg-type]
    assert played == [1]
    before = file.read_bytes()
    auto_linear.study(file, seeds=[0, 1], **settings)  # type: ignore[arg-type]
    assert file.read_bytes() == before
    assert sorted(row.floor for row in rows if row.seed == 0) == sorted(row.floor for row in first)
    table = auto_linear.cells(auto_linear.read(file))
    assert len(table) == 2 * len(clocks) * len(auto_linear.TARGETS)
    assert auto_linear.verdict(table)["cells"] == len(table)
    write_cells(tmp_path / "cells.csv", table)
    assert len((tmp_path / "cells.csv").read_text().splitlines()) == len(table) + 1
    auto_plots.draw_ratios(table, tmp_path / "ratios.png")
    auto_plots.draw_waits(rows, tmp_path / "waits.png")
    assert (tmp_path / "ratios.png").exists()
    assert (tmp_path / "waits.png").exists()


@pytest.mark.usefixtures("short")
def test_what_a_stopped_study_left_half_done_is_done_again(tmp_path: Path) -> None:
    file = tmp_path / "linear.jsonl"
    settings = {"clocks": ["fixed"], "clients": [32], "communications": [0.0]}
    auto_linear.study(file, seeds=[0, 1], **settings)  # type: ignore[arg-type]
    whole = auto_linear.read(file)
    for kept in (1, 4, 5):
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(lines[:kept]) + lines[-1][:40])
        auto_linear.study(file, seeds=[0, 1], **settings)  # type: ignore[arg-type]
        assert auto_linear.read(file) == whole
    assert auto_linear.study(file, seeds=[1], **settings) == whole[3:]  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["linear", "--clients", "33"], "unknown number of clients '33'"),
        (["linear", "--set", "rounds=3"], "--set is for networks"),
        (["digits", "--seeds", "0"], "at least one seed"),
        (["digits", "--clients", "32"], "--clients is for the linear case"),
        (["digits", "--set", "rounds"], "name=value"),
        (["digits", "--set", "rounds=abc"], "must be of type int, not 'abc'"),
        (["digits", "--set", "rounds=4"], "targets are from round 8 on"),
        (["digits", "--set", "participation=everyone"], "the study itself decides"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--out", str(tmp_path), "--runs", str(tmp_path)])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_networks_that_are_there_are_summed_up_anywhere_and_others_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = auto_networks.Setting({"data": "digits", "rounds": 4}, marks=(2,), communications=(0.0,))
    monkeypatch.setitem(auto_networks.SETTINGS, "few", few)
    small = {"clients": 6, "head_epochs": 1}
    played = auto_networks.study("few", tmp_path, seeds=[0], overrides=small)
    assert played["auto"]["0"]["in FedRep's time"]["all"] > 0
    # There is no such device here; nothing has to be trained.
    again = auto_networks.study("few", tmp_path, seeds=[0], overrides={**small, "device": "cuda"})
    assert again == played
    with pytest.raises(RunFolderError, match="holds another run"):
        auto_networks.study("few", tmp_path, seeds=[0], overrides={**small, "lr": 0.5})
    config = tmp_path / "few" / "auto-C0-seed0" / "config.json"
    held = json.loads(config.read_text())
    del held["sum"]
    held["participation"]["patience"] = 50.0
    config.write_text(seal(json.dumps(held)))
    with pytest.raises(RunFolderError, match="differs in participation"):
        auto_networks.study("few", tmp_path, seeds=[0], overrides=small)

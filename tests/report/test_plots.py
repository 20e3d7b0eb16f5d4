"""Static plots, tables and the command."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import made_up
import pytest

import srpfl
from command import srpfl as srpfl_command
from srpfl.errors import ConfigError, RunFolderError
from srpfl.options.command import command
from srpfl.report import find_runs, write_report
from srpfl.report.content import content
from srpfl.report.drawing import band, label_ends, panels
from srpfl.report.plots import (
    PLOTS,
    clients_by_speed,
    comparison,
    metric_against_time,
    speedup_against_target,
)
from srpfl.runs.clients import halves
from srpfl.runs.export import TABLES, export
from srpfl.runs.folder import RunFolder
from srpfl.runs.records import half_accuracies, mean_times

BEGINNINGS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.mark.parametrize("kind", PLOTS)
@pytest.mark.parametrize("ending", BEGINNINGS)
def test_every_plot_in_every_format_twice_the_same(kind: str, ending: str, tmp_path: Path) -> None:
    files = [tmp_path / f"{place}.{ending}" for place in (1, 2)]
    for file in files:
        made_up.run().plot(file, kind=kind)
    assert files[0].read_bytes().startswith(BEGINNINGS[ending])
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_plot_of_an_unknown_kind_or_to_an_impossible_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="known: clients, metric, rounds"):
        made_up.run().plot(kind="acuracy")
    with pytest.raises(RunFolderError, match="cannot write"):
        made_up.run().plot(tmp_path / "plot.nothing")


def test_a_panel_leaves_out_what_was_not_played_at_its_c() -> None:
    runs = [made_up.run("auto", sees=True, communication=10.0), made_up.run()]
    figure = metric_against_time(runs, communication=[0, 10])
    assert [len(panel.lines) for panel in figure.axes] == [1, 2]


def test_seeds_are_one_line_with_a_band_and_who_waits_is_dashed() -> None:
    runs = [made_up.run(name, seed=seed, first=0.3 + 0.05 * seed)
            for name in ("fedrep", "srpfl") for seed in (0, 1)]  # fmt: skip
    (panel,) = metric_against_time(runs).axes
    fedrep, srpfl = panel.lines
    assert len(panel.collections) == 2
    assert fedrep.get_color() == srpfl.get_color()
    assert (fedrep.is_dashed(), srpfl.is_dashed()) == (True, False)
    assert fedrep.get_ydata()[-1] == pytest.approx(100 * (0.925 + 0.009))
    assert [words.get_text() for words in panel.texts] == ["fedrep", "srpfl"]
    assert panel.get_xlabel() == "simulated time (1 = mean time of a client)"


def test_speed_up_against_target_has_a_line_for_each_c_and_a_band_over_seeds() -> None:
    runs = [made_up.run(name, seed=seed) for name in ("fedrep", "srpfl") for seed in (0, 1)]
    (panel,) = speedup_against_target(runs, communication=[0, 10]).axes
    assert [words.get_text() for words in panel.texts] == ["C = 10", "C = 0"]
    assert len(panel.collections) == 2
    assert panel.get_ylabel() == "times sooner than fedrep"
    backwards = speedup_against_target([made_up.run(name, metric="rmse") for name in NAMES])
    assert backwards.axes[0].xaxis_inverted()  # to the right is harder, whichever way is better
    with pytest.raises(ConfigError, match="two methods"):
        speedup_against_target(runs[:2])


NAMES = ("fedrep", "srpfl")


def test_a_single_evaluation_is_a_dot() -> None:
    runs = [replace(run, evaluations=run.evaluations[-1:]) for run in map(made_up.run, NAMES)]
    for figure, count in ((metric_against_time(runs), 2), (speedup_against_target(runs), 3)):
        lines = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
        assert len(lines) == count
    assert metric_against_time([made_up.run()]).axes[0].lines[0].get_marker() == "None"


def test_words_stand_beside_the_end_of_their_line() -> None:
    """Lines that end at one height but at different times are not in each other's way."""
    figure, (axes,) = panels(1)
    axes.set(xlim=(0, 10), ylim=(0, 10))
    label_ends(
        axes, [(2, 9, "early", "#000000"), (9, 9, "late", "#000000"), (9, 9, "x", "#000000")]
    )
    heights = {text.get_text(): 10 * text.xy[1] for text in axes.texts}
    assert heights["early"] == pytest.approx(9)
    assert abs(heights["late"] - heights["x"]) > 0.2
    figure.clear()


def test_the_band_of_a_ratio_never_ends_below_zero() -> None:
    _, (axes,) = panels(1)
    band(axes, [0, 1], [4, 4], [4, 4], "#000000", ratio=True)
    heights = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (min(heights), max(heights)) == (2, 8)


def test_all_pictures_have_the_one_look() -> None:
    """Frames, colours and dashes are made in one place; the data's own picture is below it."""
    source = Path(srpfl.__file__).parent
    rooms = [file for file in source.rglob("*.py") if file.parent.name not in ("report", "data")]
    made = [
        file.name
        for file in rooms
        if "figsize=" in file.read_text() or "pyplot" in file.read_text()
    ]
    assert made == []


def test_panels_wrap_at_three_in_a_row() -> None:
    whole = comparison([made_up.run(name) for name in NAMES], communication=[0, 1, 10, 100])
    assert len(whole.axes) == 5
    assert {round(panel.get_position().y0, 2) for panel in whole.axes[:3]} == {
        round(whole.axes[0].get_position().y0, 2)
    }
    assert whole.axes[3].get_position().y0 < whole.axes[2].get_position().y0
    many = clients_by_speed([made_up.run(name) for name in made_up.METHODS])
    assert len(many.axes) == 2 * len(made_up.METHODS)


def test_the_halves_are_those_of_the_records() -> None:
    run = made_up.run()
    times = mean_times(run.rounds)
    slowest_first = sorted(times, key=lambda client: -times[client])
    slow, fast = half_accuracies(run.evaluations[-1], slowest_first)
    assert halves(run) == pytest.approx((fast, slow))


def test_the_command_plays_the_run_again() -> None:
    from srpfl.options.config import Config

    options = {"method": "srpfl", "data": "digits", "seed": 3, "rounds": 5, "augment": False}
    assert command(options) == (
        "srpfl run --method srpfl --data digits --seed 3 --rounds 5 --no-augment"
    )
    assert Config.of(options).rounds == 5
    assert command({"something": "else"}) is None
    assert command(None) is None


def test_a_huge_population_is_thinned_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srpfl.report.content.ARRIVALS", 60)
    monkeypatch.setattr("srpfl.report.content.CLIENTS", 5)
    shown = content([made_up.run(rounds=20, clients=10)])
    assert shown["thinned"] == 4
    assert sum(len(round["times"]) for round in shown["runs"][0]["rounds"]) <= 60
    assert shown["runs"][0]["clients"] == []
    assert shown["runs"][0]["counts"] is None


def test_tables_of_a_run(tmp_path: Path) -> None:
    import pandas
    import pyarrow.parquet

    run = made_up.run(rounds=6, clients=4)
    sizes = {"evaluations": 6, "clients": 24, "rounds": 6, "arrivals": 24}
    for format in ("csv", "parquet"):
        files = export(run, tmp_path, format=format, communication=10)
        assert [file.name for file in files] == [f"{name}.{format}" for name in TABLES]
    for name, size in sizes.items():
        frame = run.to_pandas(name, communication=10)
        assert len(frame) == size
        parquet = pyarrow.parquet.read_table(tmp_path / f"{name}.parquet").to_pandas()
        pandas.testing.assert_frame_equal(frame, parquet, check_dtype=False)
        with (tmp_path / f"{name}.csv").open() as file:
            assert len(list(csv.DictReader(file))) == size
    last = run.to_pandas(communication=10).iloc[-1]
    assert last.time == run.time(10)
    assert (last.metric, last.value) == ("accuracy", run.accuracy[-1].mean)
    with pytest.raises(ConfigError, match="rounds"):
        run.to_pandas("rouns")
    with pytest.raises(ConfigError, match="another C"):
        export(made_up.run(sees=True), tmp_path, communication=10)


@pytest.mark.slow
def test_the_command_writes_one_file_for_a_folder_of_runs(tmp_path: Path) -> None:
    for name in ("fedrep", "srpfl"):
        made_up.keep(made_up.run(name), RunFolder(tmp_path / "both" / name))
    done = srpfl_command("report", "both", "--json", cwd=tmp_path)
    assert json.loads(done.stdout) == {
        "report": "both/report.html",
        "runs": ["both/fedrep", "both/srpfl"],
    }
    assert "</html>" in (tmp_path / "both" / "report.html").read_text()
    opened = subprocess.run(
        [sys.executable, "-m", "srpfl", "report", "both", "--open", "--title", "Tuesday"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "BROWSER": "echo shows %s"},
    )
    assert f"shows {(tmp_path / 'both' / 'report.html').as_uri()}" in opened.stdout
    assert '"title":"Tuesday"' in (tmp_path / "both" / "report.html").read_text()
    bad = srpfl_command("report", "nowhere", cwd=tmp_path, fails=True)
    assert bad.returncode == 2
    assert bad.stderr.startswith("srpfl: nowhere holds no run")


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="nothing to report"):
        write_report([], tmp_path / "report.html")
    with pytest.raises(RunFolderError, match="holds no run"):
        find_runs([tmp_path])


def test_folders_of_pictures_beside_runs_are_left_out(tmp_path: Path) -> None:
    """As a shell's runs/* names them."""
    made_up.keep(made_up.run("srpfl"), RunFolder(tmp_path / "one"))
    (tmp_path / "compare").mkdir()
    assert find_runs([tmp_path / "compare", tmp_path / "one"]) == [tmp_path / "one"]
    with pytest.raises(RunFolderError, match="nowhere holds no run"):
        find_runs([tmp_path / "one", tmp_path / "nowhere"])


def test_the_command_exports_runs_for_other_tools(tmp_path: Path) -> None:
    for name in ("fedrep", "srpfl"):
        made_up.keep(made_up.run(name), RunFolder(tmp_path / "both" / name))
    done = srpfl_command("export", "both", "--out", "tables", cwd=tmp_path)
    assert done.stdout == "2 runs: tables\n", done.stderr
    assert len(list(tmp_path.glob("tables/*/*.csv"))) == 2 * len(TABLES)
    bad = srpfl_command("export", "both", "--to", "cvs", cwd=tmp_path, fails=True)
    assert bad.returncode == 2
    assert "did you mean 'csv'" in bad.stderr


@pytest.mark.slow
def test_a_terminal_shows_how_a_run_goes_on(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty", reason="needs a system with terminals")
    controller, terminal = pty.openpty()
    command = [sys.executable, "-c", "from srpfl.cli import main; main()", "run"]
    options = ["--clients", "5", "--rounds", "4", "--communication", "10", "--out", "run"]
    process = subprocess.Popen(
        [*command, *options],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=terminal,
        env={**os.environ, "COLUMNS": "160", "TERM": "xterm"},
    )
    os.close(terminal)
    shown = b""
    try:
        while piece := os.read(controller, 65536):
            shown += piece
    except OSError:  # how a terminal says that the other side has gone
        pass
    os.close(controller)
    assert process.wait(timeout=60) == 0
    text = shown.decode()
    for part in ("srpfl", "4/4", "left", "n = 5/5", " %", "time 4", "stage 3", "rounds/s"):
        assert part in text, part

"""The study plays what is missing, once, and its runs are those of the library."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from srpfl import linear
from srpfl.clock import DynamicExponential
from srpfl.errors import ConfigError, RunFolderError
from srpfl.participation import Auto, Everyone, FirstN
from srpfl.runs.run import Run
from srpfl.runs.seal import seal
from srpfl.studies import auto_ceiling, auto_cells, auto_networks, auto_plots, auto_settings
from srpfl.studies.auto import main
from srpfl.studies.auto_settings import Setting

SMALL = Setting(clients=16, start=2, dim=6, samples=8, eta=0.3, clock="dynamic",
                heads="by-speed", communications=(0.0, 1.0))  # fmt: skip


def test_played_side_by_side_or_alone_a_run_is_the_same() -> None:
    row = auto_cells.compare(SMALL, 5, known=[(), ("distance", "pull", "waits")])
    alone = {"fedrep": Everyone(), "first-0.5": FirstN(n=8), "auto": Auto(start=2)}
    for name, policy in alone.items():
        run = linear.run(
            SMALL.problem(5),
            participation=policy,
            clock=DynamicExponential(communication=1.0),
            eta=0.3,
            rounds=SMALL.rounds,
        )
        for target, time in zip(auto_cells.TARGETS, row.times[name]["1"], strict=True):
            assert time == (
                pytest.approx(run.time_to(target * row.floor, 1.0), rel=1e-4) if time else None
            )
    assert row.times["fedrep"]["0"][0] is not None
    assert row.times["auto-distance-pull-waits"]["0"][2] is not None


def test_a_stopped_study_goes_on_and_is_summed_up_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, played, whole = tmp_path / "some.jsonl", list[int](), auto_cells.compare
    first = auto_cells.study(file, [SMALL], [0])
    monkeypatch.setattr(auto_cells, "compare", lambda *a: played.append(a[1]) or whole(*a))
    with file.open("a") as out:
        out.write('{"setting": {"clie')  # stopped while it wrote
    rows = auto_cells.study(file, [SMALL], [0, 1])
    assert played == [1]
    assert rows[0].times == first[0].times
    assert auto_cells.read(file) == rows
    table = auto_cells.cells(rows)
    found = auto_cells.verdict(table)
    assert found["cells"] == len(table) == sum(found["best in hindsight"].values())
    assert all(cell.ratio(cell.best) == 1 for cell in table)
    assert 0 <= found["auto"]["within 1.15"] <= 1
    auto_plots.draw_cells(table, tmp_path / "some.png")
    assert (tmp_path / "some.png").exists()


def made_up(replay: int, few: float, many: float, auto: float) -> auto_cells.Row:
    """Two members at one C, with the same time to all targets."""
    names = {"fedrep": many, "first-0.5": few, "auto": auto}
    times = {name: {"0": [time] * 3} for name, time in names.items()}
    setting = Setting(communications=(0.0,))
    return auto_cells.Row(setting, 0, 1.0, times, waits={}, replay=replay)


def test_who_picks_from_other_replays_is_judged_by_the_one_left() -> None:
    """The few are faster in two replays of three, and the pick is wrong in the third."""
    rows = [made_up(0, 1.0, 2.0, 1.0), made_up(1, 1.0, 2.0, 1.0), made_up(2, 3.0, 1.5, 3.0)]
    found = auto_ceiling.ceiling(rows)
    # Without one of the first two, one speaks for the few and one, as loudly, for all: the first.
    assert found["cells"] == 9
    assert found["picked for C"] == found["picked for C and target"]
    assert found["picked for C"]["worst"] == 2.0
    assert found["auto"]["within 1.15"] == pytest.approx(2 / 3, abs=1e-3)
    assert found["cells, on means"] == 3
    assert found["auto, on means"]["worst"] == 1.0  # 5/3 of both
    with pytest.raises(ConfigError, match="at least two"):
        auto_ceiling.ceiling(rows[:1])
    # Where all others met the targets before the first round, there is nothing to pick from.
    met = [made_up(replay, 0.0, 0.0, 0.0) for replay in (4, 5)]
    assert auto_ceiling.ceiling([made_up(3, 1.0, 2.0, 1.0), *met])["cells"] == 0


def test_settings_in_which_nothing_is_left_to_learn_are_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_cells, "study", lambda *a: [made_up(0, 0.0, 0.0, 0.0)])
    with pytest.raises(SystemExit):
        main(["cells", "--draw", "1", "--out", str(tmp_path)])
    assert "the start is within every target" in capsys.readouterr().err


def test_autos_time_is_set_beside_each_members_and_the_bests() -> None:
    rows = [made_up(0, 1.0, 2.0, 3.0)]
    table = [*auto_cells.cells(rows), *auto_cells.cells([made_up(0, math.inf, 6.0, 3.0)])]
    assert auto_cells.beside(table) == [
        "the best in hindsight: 1.75 (0.50 to 3.00)",
        "fedrep: 1.00 (0.50 to 1.50)",
        "first-0.5: 1.50 (0.00 to 3.00)",
    ]
    table = auto_cells.cells([made_up(0, math.inf, 1.0, math.inf)])
    assert (
        auto_cells.beside(table)[0]
        == "the best in hindsight: not reached (not reached to not reached)"
    )


def test_how_often_auto_is_close_is_told_by_what_sets_cells_apart() -> None:
    near, noisy = Setting(communications=(0.0,)), Setting(communications=(5.0,), noise=30.0)
    rows = [
        replace(made_up(0, 1.0, 2.0, auto), setting=setting, times={
            name: {f"{setting.communications[0]:g}": [time] * 3}
            for name, time in {"fedrep": 2.0, "first-0.5": 1.0, "auto": auto}.items()
        })
        for setting, auto in ((near, 1.1), (noisy, 1.2))
    ]  # fmt: skip
    assert auto_cells.shares(rows, auto_cells.cells(rows)) == [
        "C = 0: 100 % of 3",
        "C above 1: 0 % of 3",
        "clock fixed: 50 % of 6",
        "start beyond 0.95: 0 % of 3",
        "start within 0.95: 100 % of 3",
    ]


def test_a_file_of_something_else_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.jsonl"
    for text in ("hello\n", '{"setting": {}}\n', "[]\n"):
        mine.write_text(text)
        with pytest.raises(ConfigError, match="move it away"):
            auto_cells.read(mine)
    with pytest.raises(SystemExit):
        main(["cells", "--draw", "1", "--out", str(mine)])
    assert capsys.readouterr().err.count("\n") == 1


def test_a_replay_has_other_batches_and_the_same_start() -> None:
    first, again = (auto_cells.compare(SMALL, 5, replay=replay) for replay in (0, 1))
    assert first.times == auto_cells.compare(SMALL, 5).times
    assert again.times != first.times
    assert auto_cells.Row.of(again.json()).replay == 1


def test_anyone_can_draw_settings_or_write_their_own(tmp_path: Path) -> None:
    drawn = auto_settings.drawn(30, 3)
    assert drawn == auto_settings.drawn(30, 3) != auto_settings.drawn(30, 4)
    assert {setting.clock for setting in drawn} == set(auto_settings.CLOCKS)
    assert {setting.heads for setting in drawn} == set(auto_settings.HEADS)
    assert max(setting.clients for setting in drawn) > 1000
    auto_settings.write_settings(tmp_path / "mine.json", drawn)
    assert auto_settings.read_settings(tmp_path / "mine.json") == drawn
    mine = tmp_path / "mine.toml"
    mine.write_text('[[setting]]\nclients = 32\nclock = "iid"\ncommunications = [0, 5]\n')
    (setting,) = auto_settings.read_settings(mine)
    assert (setting.clients, setting.clock, setting.communications) == (32, "iid", (0, 5))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[setting]]\nclient = 3", "unknown name in a setting 'client'"),
        ("[[setting]]\nclock = 'slow'", "unknown clock 'slow'"),
        ("[[setting]]\nclock = ['fixed']", "unknown clock"),
        ("[[setting]]\nclients = 2.5", "clients must be a whole number"),
        ("[[setting]]\nstart = 100", "start must be between 1 and clients"),
        ("[[setting]]\neta = 0", "eta must be a positive number"),
        ("[[setting]]\ncommunications = []", "numbers from 0 on"),
        ("[[setting]]\nsamples = 1", "samples must be at least rank"),
        ("setting = 3", "must hold a list named 'setting'"),
        ("[[", "cannot read settings"),
    ],
)
def test_a_mistake_in_a_file_of_settings_is_one_sentence(
    text: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        auto_settings.read_settings(tmp_path / "mine.toml")


def test_heads_that_go_by_speed_differ_between_the_fast_and_the_slow() -> None:
    setting = Setting(clients=64, clock="pareto", heads="by-speed")
    heads, times = setting.problem(0).heads, setting.times(0, 0)
    slow = times > np.median(times)
    assert np.linalg.norm(heads, axis=1) == pytest.approx(np.sqrt(2))
    assert heads[~slow, 0].mean() > 1 > 0.5 > heads[slow, 0].mean()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["cells", "--set", "rounds=3"], "--set is for networks"),
        (["cells", "--also", "target"], "unknown truth or parameter 'target'"),
        (["cells", "--also", "pull,margin=wide"], "margin must be a number, not 'wide'"),
        (["cells", "--also", "margin=2"], "below 1, not 2"),
        (["cells", "--draw", "0"], "at least one setting"),
        (["cells", "--settings", "none.toml"], "cannot read settings"),
        (["digits", "--seeds", "0"], "at least one seed"),
        (["digits", "--draw", "3"], "are for cells"),
        (["digits", "--replays", "3"], "are for cells"),
        (["cells", "--replays", "0"], "at least once, not 0 times"),
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
    # Six clients in six of the tenths.
    scores = Run.load(tmp_path / "few" / "fedrep-seed0").scores
    own = [np.mean([point.clients[client] for point in scores]) for client in range(6)]
    assert sorted(played["fedrep"]["deciles"]) == pytest.approx(sorted(own), abs=1e-4)
    assert "fedrep" in auto_networks.verdict(played)["final by speed, slowest tenth first"]
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

"""The study of all methods: what is left out, what a row says, sittings that add up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srpfl.errors import SrpflError
from srpfl.options.choices import build_algorithm
from srpfl.options.config import Config
from srpfl.options.experiment import experiment
from srpfl.options.methods import METHODS
from srpfl.runs.records import EvaluationRecord, RoundRecord
from srpfl.runs.run import Run
from srpfl.studies import methods as study
from srpfl.studies.methods_page import cells, draw, ranking, table


def row(method: str, policy: str, time: float | None, seed: int = 0) -> dict[str, Any]:
    about = {"method": method, "seed": seed, "policy": policy, "C": 0.0}
    return {**about, "final": 0.8, "slow - fast": -0.01, "end": 9.0, "time": time}


def test_every_method_is_in_it_once() -> None:
    with_a_twin = {name for name, method in METHODS.items() if method.twin}
    assert {*study.ALL, *study.SPECIAL, *with_a_twin} == METHODS.keys()
    assert "mocha" in study.PARTS["digits-linear"].methods


@pytest.mark.parametrize("name", study.ALL)
def test_the_options_of_the_small_part_make_an_experiment(name: str) -> None:
    options = {**study.PARTS["digits"].options, "method": name}
    assert type(experiment(Config.of(options))["algorithm"]) is METHODS[name].algorithm


def test_a_speed_up_is_over_the_same_seeds_twin() -> None:
    rows = [
        *(row("fedavg", "everyone", 10.0 * (1 + seed), seed) for seed in (0, 1)),
        *(row("fedavg", "doubling", 5.0, seed) for seed in (0, 1)),
        row("ditto", "everyone", 10.0),
        row("ditto", "doubling", None),
    ]
    found = cells(rows)
    assert found["fedavg", "doubling", 0.0]["speedup"] == 3.0  # of 2 and 4
    assert found["ditto", "doubling", 0.0]["speedup"] is None
    lines = table(rows).splitlines()
    assert lines[2] == "| fedavg | 80.0 % | 80.0 % |"
    assert lines[-1].endswith("| never |")


def test_an_end_is_when_everyone_has_played() -> None:
    """The twin's rounds are over at 4. What an adaptive run has later does not count; with C = 1 it
    has less time for its shorter rounds."""

    def run(duration: float, values: list[float]) -> Any:
        rounds = [
            RoundRecord(i + 1, 0, 2, 2, [0, 1], [1.0, 2.0], [], [], 1.0, duration,
                        duration * (i + 1))
            for i in range(len(values))
        ]  # fmt: skip
        scores = [
            EvaluationRecord(
                i + 1, "personalised", duration * (i + 1), value, [value] * 2, [1.0] * 2
            )
            for i, value in enumerate(values)
        ]
        return Run({"headline": "personalised", "communication": 0.0}, rounds, scores)

    twin, other = run(2.0, [0.2, 0.4]), run(1.0, [0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
    part = replace(study.PARTS["digits"], mark=1)
    ends = {}
    for cost in (0.0, 1.0):
        row = study._row(part, "fedavg", 0, "auto", cost, other, twin)
        ends[cost] = row["end"], row["final"]
    assert ends[0.0] == (4.0, 0.4)  # the mean up to 0.7
    assert ends[1.0] == (6.0, 0.3)  # three rounds of two


def test_a_later_sitting_replaces_what_it_repeats(tmp_path: Path) -> None:
    old = [row("ditto", "everyone", 1.0), row("fedavg", "everyone", 2.0)]
    both = study.merged(old, [row("ditto", "everyone", 3.0)])
    assert [(each["method"], each["time"]) for each in both] == [("fedavg", 2.0), ("ditto", 3.0)]
    diverged = {"method": "ditto", "seed": 0, "policy": "doubling", "C": 0.0, "diverged": True}
    draw([*both, diverged], tmp_path / "picture.png")
    assert "diverged" in table([*both, diverged])


RESULTS = Path(__file__).parents[2] / "results" / "methods"


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.json")), ids=lambda file: file.stem)
def test_the_results_page_has_the_tables_of_its_rows(file: Path) -> None:
    found = study.page(file.stem, json.loads(file.read_text()))
    assert found == file.with_suffix(".md").read_text()
    assert found.strip() in (RESULTS / "README.md").read_text()


def test_methods_are_ranked_by_their_means() -> None:
    rows = [{**row("ditto", "everyone", 1.0, seed), "final": 0.6 + seed / 10} for seed in (0, 1)]
    rows += [{"method": "scaffold", "seed": 0, "policy": "everyone", "C": 0.0, "diverged": True}]
    rows += [row("fedavg", "everyone", 1.0)]
    lines = ranking(rows).splitlines()[2:]
    assert lines == [
        "| fedavg | 80.0 | – | 80.0 |",
        "| ditto | 65.0 | 7.1 | 60.0, 70.0 |",
        "| scaffold | diverged | – | diverged |",
    ]


def test_what_is_not_begun_in_time_has_no_row(tmp_path: Path) -> None:
    folders = ["--out", str(tmp_path / "out"), "--runs", str(tmp_path / "runs")]
    study.main(["digits", "--only", "fedavg", "--seeds", "0", "--minutes", "0", *folders])
    assert json.loads((tmp_path / "out" / "digits.json").read_text()) == []
    assert not (tmp_path / "runs").exists()


def test_a_method_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def played(part: str, runs: Path, *, methods: Any, **how: Any) -> list[dict[str, Any]]:
        if methods == ["fedavg"]:
            raise SrpflError("it fails")
        return [row(methods[0], "everyone", 1.0)]

    monkeypatch.setattr(study, "study", played)
    with pytest.raises(SystemExit):
        study.main(["digits", "--only", "fedavg", "ditto", "--out", str(tmp_path)])
    assert "fedavg: it fails" in capsys.readouterr().err
    rows = json.loads((tmp_path / "digits.json").read_text())
    assert [each["method"] for each in rows] == ["ditto"]


def test_the_published_settings_make_experiments() -> None:
    """All by the same optimiser, so that the order is that of the methods."""
    for name in ("niid-bench", "fedrep-2"):
        for method in study.PARTS[name].methods:
            [cell] = study._cells(name, Path("runs"), method, 0, {})
            rule = build_algorithm(cell.run.config, METHODS[method]).rule
            assert getattr(rule, "momentum", 0.5) == (0.9 if name == "niid-bench" else 0.5)


@pytest.mark.slow
def test_a_part_is_played_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = {**study.PARTS["digits"].options, "clients": 4, "rounds": 4, "per_client": 20}
    part = replace(study.PARTS["digits"], options=short, mark=2, communications=(0.0,))
    monkeypatch.setitem(study.PARTS, "digits", part)
    given = ["digits", "--only", "fedavg", "--seeds", "0", "--engine", "loop"]
    folders = ["--out", str(tmp_path / "out"), "--runs", str(tmp_path / "runs")]
    study.main([*given, *folders])
    file = tmp_path / "out" / "digits.json"
    first = file.read_text()
    assert [each["policy"] for each in json.loads(first)] == ["everyone", "doubling", "auto"]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*.jsonl")}
    study.main([*given, *folders])
    assert file.read_text() == first
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*.jsonl")}
    assert after == before
    assert file.with_suffix(".png").stat().st_size > 1000

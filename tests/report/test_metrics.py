"""Metrics of all kinds: what is better when lower is compared and shown the right way round."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from itertools import pairwise
from pathlib import Path

import made_up
import pytest
from browser import Page, table

from command import srpfl
from srpfl.errors import ConfigError
from srpfl.loop.progress import ProgressLine
from srpfl.report import write_report
from srpfl.report.content import content
from srpfl.report.plots import clients_by_speed, metric_against_time
from srpfl.report.status import is_over
from srpfl.runs.clients import client_rows, halves
from srpfl.runs.comparison import compare
from srpfl.runs.export import export
from srpfl.runs.folder import EVALUATIONS, RunFolder
from srpfl.runs.groups import groups_of
from srpfl.runs.metric import Metric
from srpfl.runs.records import EvaluationRecord
from srpfl.runs.run import Run

RMSE = Metric("rmse", higher_is_better=False)


def pair(metric: str = "rmse") -> list[Run]:
    return [made_up.run("fedrep", start=10, metric=metric), made_up.run("srpfl", metric=metric)]


def with_values(values: list[float], metric: str = "rmse") -> Run:
    """A run whose metric goes through these values."""
    run = made_up.run(rounds=len(values), metric=metric)
    records = [
        dataclasses.replace(record, value=value)
        for record, value in zip(run.evaluations, values, strict=True)
    ]
    return dataclasses.replace(run, evaluations=records)


@pytest.mark.parametrize(
    ("metric", "one", "other", "target"),
    [
        # The best that both reached, and 5 % of it given away.
        ("rmse", [20, 10, 12], [30, 20, 25], 21.0),
        ("accuracy", [0.2, 0.8, 0.7], [0.1, 0.9, 0.6], 0.76),
        ("r2", [-9, -2, -3], [-5, -1, -4], -2.1),
        ("r2", [0.1, 0.5, 0.4], [0.2, 0.8, 0.9], 0.475),
        ("perplexity", [9000.0, 1234.5, 2000.0], [50.0, 3.0, 4.0], 1297.0),
    ],
)
def test_the_target_is_the_best_that_both_reached_a_little_loosened(
    metric: str, one: list[float], other: list[float], target: float
) -> None:
    runs = [with_values(one, metric), with_values(other, metric)]
    found = compare(runs).target
    assert found == pytest.approx(target)
    assert all(run.time_to(found) is not None for run in runs)


def test_a_target_is_reached_from_above_where_lower_is_better() -> None:
    run = with_values([20.0, 12.0, 9.0, 11.0])
    times = [point.time for point in run.scores]
    assert [run.time_to(target) for target in (25.0, 12.0, 10.0)] == times[:3]
    assert run.time_to(8.9) is None
    assert run.accuracy == run.scores
    assert run.scores[-1].mean == run.scores[-1].value == 11.0


def test_speed_ups_are_those_of_the_first_evaluation_at_the_target_or_better() -> None:
    runs = pair()
    found = compare(runs, communication=(0, 10))
    assert (found.metric, found.higher_is_better) == ("rmse", False)
    # 9.91 after the last round, loosened to 10.4055 and rounded up: reached one round before it.
    assert found.target == 10.41
    assert [row.final for row in found.rows] == pytest.approx([9.91, 9.91])
    slow, fast = (run.rounds[-2].time(0) for run in runs)
    assert found.rows[1].time_to_target[0] == fast
    assert found.rows[1].speedup[0] == pytest.approx(slow / fast)
    early = compare(runs, communication=(0,), target=15.0)
    assert early.rows[0].time_to_target[0] == runs[0].rounds[9].time(0)
    assert compare(runs, target=9.0).rows[0].time_to_target == {0: None, 10: None, 100: None}


def test_runs_of_different_metrics_are_not_compared() -> None:
    mixed = [made_up.run("fedrep"), made_up.run("srpfl", metric="rmse")]
    for refuse in (compare, metric_against_time, clients_by_speed):
        with pytest.raises(ConfigError, match=r"different metrics \(accuracy, RMSE\)"):
            refuse(mixed)


@pytest.mark.parametrize("target", [math.nan, math.inf])
def test_a_target_must_be_a_number(target: float) -> None:
    with pytest.raises(ConfigError, match="the target must be a number"):
        compare(pair(), target=target)
    assert compare(pair(), target=15.0).target == 15.0  # and need not be a fraction
    with pytest.raises(ConfigError, match="fraction above 0"):
        compare(pair("label accuracy"), target=15.0)


def test_runs_from_before_there_were_tasks_are_of_the_same_group() -> None:
    run = made_up.run()
    named = {**run.config, "task": {"kind": "Classification", "metric": "accuracy"}}
    old = {name: value for name, value in run.config.items() if name != "task"}
    runs = [dataclasses.replace(run, config=config) for config in (named, old)]
    assert len(set(groups_of(runs))) == 1
    assert {each.judged_by for each in runs} == {Metric()}


def test_a_folder_of_the_first_version_is_judged_by_accuracy(tmp_path: Path) -> None:
    run = made_up.run(rounds=3)
    config = {name: value for name, value in run.config.items() if name != "task"}
    folder = RunFolder(tmp_path / "old")
    made_up.keep(dataclasses.replace(run, config=config), folder)
    lines = []
    for record in run.evaluations:
        values = dataclasses.asdict(record)
        for name in ("metric", "higher_is_better"):
            del values[name]
        values["accuracy"], values["tested"] = values.pop("value"), values.pop("weights")
        lines.append(json.dumps(values) + "\n")
    (folder.path / EVALUATIONS).write_text("".join(lines))
    loaded = Run.load(folder.path)
    assert loaded.judged_by == Metric()
    assert loaded.scores == run.scores


def test_the_value_of_several_clients_is_that_of_all_their_samples() -> None:
    assert RMSE.pooled([3.0, 1.0], [1, 3]) == pytest.approx(math.sqrt(3))
    both = Metric("perplexity", False).pooled([2.0, 8.0], [1, 1])
    assert both == pytest.approx(4.0)
    assert Metric().pooled([1.0, 0.0], [1, 3]) == 0.25
    assert RMSE.pooled([0.0], [0]) is None


def test_the_halves_leave_out_who_was_not_tested() -> None:
    run = made_up.run(clients=4, rounds=2, metric="rmse")
    fastest = [row.client for row in client_rows(run)]
    values, weights = [0.0] * 4, [0.0] * 4
    for client, value, weight in zip(fastest, (3.0, 0.0, 1.0, 7.0), (1, 0, 1, 1), strict=True):
        values[client], weights[client] = value, weight
    last = dataclasses.replace(run.evaluations[-1], clients=values, weights=weights)
    run = dataclasses.replace(run, evaluations=[last])
    assert halves(run) == (3.0, pytest.approx(5.0))
    assert client_rows(run)[1].value is None


def test_a_run_that_came_down_to_its_target_is_over() -> None:
    assert is_over(made_up.run(rounds=20, planned=40, metric="rmse", stop_at=10.0))
    assert not is_over(made_up.run(rounds=20, planned=40, metric="rmse", stop_at=9.0))


def test_plots_have_the_metrics_own_axis() -> None:
    figure = metric_against_time(pair(), communication=[0.0, 10.0], target=12.5)
    left, right = figure.axes
    assert left.get_ylabel() == "RMSE"
    *curves, goal = left.lines
    assert curves[0].get_ydata()[-1] == pytest.approx(9.91)  # no per cent
    assert set(goal.get_ydata()) == {12.5}
    assert [words.get_text() for words in right.texts] == ["fedrep", "srpfl"]
    shares = metric_against_time(pair("label accuracy")).axes[0]
    assert shares.get_ylabel() == "label accuracy (%)"
    assert shares.lines[0].get_ydata()[-1] > 90
    above = clients_by_speed(pair()).axes[0]
    assert above.get_ylabel() == "RMSE"
    assert above.get_ylim()[0] == 0
    assert 9.9 < above.get_ylim()[1] < 20


def test_tables_name_the_metric(tmp_path: Path) -> None:
    run = made_up.run(rounds=3, clients=2, metric="rmse")
    last = run.evaluations[-1]
    untested = dataclasses.replace(last, weights=[10, 0])
    run = dataclasses.replace(run, evaluations=[*run.evaluations[:-1], untested])
    assert "personalised RMSE" in repr(run)
    export(run, tmp_path)
    with (tmp_path / "evaluations.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[-1]["metric"] == "rmse"
    assert float(rows[-1]["value"]) == last.value
    with (tmp_path / "clients.csv").open() as file:
        *_, tested, not_tested = csv.DictReader(file)
    assert (float(tested["value"]), tested["weight"]) == (last.clients[0], "10")
    assert (not_tested["value"], not_tested["weight"]) == ("", "0")  # and not the best there is


def test_the_command_compares_by_the_metric(tmp_path: Path) -> None:
    for run in pair():
        made_up.keep(run, RunFolder(tmp_path / "runs" / run.name))
    said = srpfl("compare", "runs", "--out", "out", cwd=tmp_path).stdout
    assert "simulated time to RMSE 10.41" in said
    assert "9.91" in said
    assert "%" not in said.replace("5 % short", "")
    assert [file.name.split("-")[0] for file in (tmp_path / "out").glob("*.png")] == ["rmse"]
    found = json.loads(srpfl("compare", "runs", "--json", cwd=tmp_path).stdout)
    assert (found["metric"], found["target"]) == ("rmse", 10.41)
    made_up.keep(made_up.run("fedper"), RunFolder(tmp_path / "other"))
    refused = srpfl("compare", "runs", "other", cwd=tmp_path, fails=True)
    assert "judged by different metrics (RMSE, accuracy)" in refused.stderr
    refused = srpfl("report", "runs", "other", "--target", "10", cwd=tmp_path, fails=True)
    assert "a target is of one metric" in refused.stderr
    srpfl("report", "runs", "--target", "12", cwd=tmp_path)
    assert '"target":12.0' in (tmp_path / "runs" / "report.html").read_text()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_narrow_progress_line_has_fewer_words_and_none_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = {60: "90.9 %, n = ", 80: "time ", 120: "stage "}
    for width, last in words.items():
        screen = Terminal()
        monkeypatch.setattr("sys.stderr", screen)
        monkeypatch.setenv("COLUMNS", str(width))
        run = made_up.run()
        with ProgressLine() as line:
            line.setting(run.config)
            line.begin("srpfl", 20, 0)
            line.evaluation(run.evaluations[-1])
            line.round(run.rounds[-1])
        assert last in screen.getvalue()
        assert "…" not in screen.getvalue()
        assert "rounds/s" in screen.getvalue() or width < 120


def test_a_run_that_was_over_before_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with ProgressLine() as line:
        line.setting(made_up.run().config)
        line.begin("srpfl", 20, 20)
    assert "done" in screen.getvalue()
    assert "left" not in screen.getvalue()


def test_the_progress_line_names_what_is_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    for metric, words in (("rmse", "RMSE 9.91"), ("accuracy", "90.9 %, "), ("r2", "R² 0.909")):
        screen = Terminal()
        monkeypatch.setattr("sys.stderr", screen)
        monkeypatch.setenv("COLUMNS", "160")
        run = made_up.run(metric=metric)
        with ProgressLine() as line:
            line.setting(run.config)
            line.begin("made up", 20, 0)
            line.evaluation(run.evaluations[-1])
            line.round(run.rounds[-1])
        assert words in screen.getvalue()


# In a browser


def opened(page: Page, runs: list[Run], folder: Path) -> None:
    page.open(write_report(runs, folder / "report.html").as_uri())
    assert page.complaints == []


def text(page: Page, selector: str) -> str:
    return str(page.evaluate(f"document.querySelector('{selector}').textContent"))


def ask_for(page: Page, target: float) -> None:
    page.evaluate(
        "(() => { const input = document.getElementById('target');"
        f"input.value = {target}; input.dispatchEvent(new Event('change')); }})()"
    )


def test_the_page_says_what_the_library_computes(page: Page, tmp_path: Path) -> None:
    runs = pair()
    opened(page, runs, tmp_path)
    for target in (10.41, 15.0):
        ask_for(page, target)
        expected = compare(runs, communication=(0, 10, 100), target=target)
        for shown, row in zip(table(page), expected.rows, strict=True):
            assert shown[1] == "9.91"
            times = [float(cell) for cell in shown[2:]]
            assert times == pytest.approx(list(row.time_to_target.values()), rel=1e-3)
        (shown,) = table(page, "gains")
        speedups = [float(cell[:-1]) for cell in shown[1:]]
        assert speedups == pytest.approx(list(expected.rows[1].speedup.values()), rel=5e-3)
    ask_for(page, 9.0)
    assert table(page)[0][2] == "not reached"


def test_nothing_on_the_page_is_in_per_cent(page: Page, tmp_path: Path) -> None:
    opened(page, pair(), tmp_path)
    assert text(page, "#headline") == "RMSE against time"
    assert page.evaluate("document.getElementById('target').value") == "10.41"
    assert "target 10.41" in text(page, "#curves svg")
    assert "last RMSE" in text(page, "#table thead")
    assert "faster half 9." in text(page, "#clients")
    assert page.evaluate("document.getElementById('partition').hidden")  # there are no classes
    shown = page.evaluate(
        "[...document.querySelectorAll('main section:not(#settings)')].map(s => s.innerText).join()"
    )
    assert "%" not in shown.replace("5 % short", "")
    assert "accuracy" not in shown.lower()
    page.hover("#clients canvas", 0.3, 0.3)
    page.wait_for("!document.getElementById('tip').hidden")
    assert "RMSE9." in text(page, "#tip")


def test_the_curve_falls_and_the_best_comes_first(page: Page, tmp_path: Path) -> None:
    better = with_values([20.0, 10.0, 5.0, 4.0])
    worse = dataclasses.replace(
        with_values([30.0, 25.0, 24.0, 23.0]), config={**better.config, "name": "fedrep"}
    )
    opened(page, [worse, better], tmp_path)
    path = page.evaluate("document.querySelector('path.curve').getAttribute('d')")
    heights = [float(step.split()[1]) for step in path[1:].split("L")]
    assert heights == sorted(heights)  # y grows downwards
    page.hover("#curves svg", 0.95, 0.5)
    page.wait_for("!document.getElementById('tip').hidden")
    said = text(page, "#tip")
    assert said.index("srpfl") < said.index("fedrep")
    low, high = page.evaluate("ends([4, 30], false)")
    assert (low, high) == (0, 30)
    assert page.evaluate("ends([0.31, 0.68], false)") == pytest.approx([0.3, 0.7])
    assert page.evaluate("ends([7], false)") == pytest.approx([6, 8])
    assert page.evaluate("ends([-3, 0.5], false)") == pytest.approx([-3, 1])


def test_large_differences_can_be_seen_on_a_logarithmic_axis(page: Page, tmp_path: Path) -> None:
    opened(page, [with_values([4000.0, 400.0, 40.0, 4.0], "perplexity")], tmp_path)
    page.evaluate("document.getElementById('value-log').click()")
    path = page.evaluate("document.querySelector('path.curve').getAttribute('d')")
    heights = [float(step.split()[1]) for step in path[1:].split("L")]
    steps = [later - earlier for earlier, later in pairwise(heights)]
    assert steps == pytest.approx([steps[0]] * 3, abs=0.3)
    opened(page, pair("accuracy"), tmp_path)
    assert page.evaluate("document.getElementById('value-log-control').hidden")


def test_runs_of_different_metrics_are_shown_one_metric_at_a_time(
    page: Page, tmp_path: Path
) -> None:
    opened(page, [*pair("rmse"), made_up.run("srpfl")], tmp_path)
    assert "one is shown at a time" in text(page, "#board-note")
    assert [row[:2] for row in table(page)] == [["fedrep", "9.91"], ["srpfl", "9.91"]]
    page.evaluate(
        "(() => { const choice = document.getElementById('board');"
        "choice.value = '1'; choice.dispatchEvent(new Event('change')); })()"
    )
    assert [row[:2] for row in table(page)] == [["srpfl", "90.9 %"]]
    assert text(page, "#headline") == "Accuracy against time"
    assert page.evaluate("document.querySelectorAll('#curves path.curve').length") == 1
    assert not page.evaluate("document.getElementById('partition').hidden")
    opened(page, pair("rmse"), tmp_path)
    assert page.evaluate("document.getElementById('board-note').hidden")


def test_a_metric_of_ones_own_goes_by_its_name_and_direction() -> None:
    shown = content([made_up.run(metric="angle"), made_up.run(metric="r2")])
    assert [(m["title"], m["axis"], m["higher"], m["share"]) for m in shown["boards"]] == [
        ("angle", "angle", False, False),
        ("R²", "R²", True, False),
    ]
    assert [m["target"] for m in shown["boards"]] == [10.41, 0.8635]


def test_a_live_page_follows_a_metric_that_falls(tmp_path: Path) -> None:
    from srpfl.report.live import _content

    folder = RunFolder(tmp_path / "run")
    made_up.keep(made_up.run(metric="rmse"), folder, upto=0)
    assert _content([tmp_path])["boards"][0]["target"] is None  # type: ignore[index]
    made_up.keep(made_up.run(metric="rmse"), folder, upto=10)
    assert _content([tmp_path])["boards"][0]["target"] == 15.66  # type: ignore[index]


def test_an_evaluation_knows_which_way_is_better() -> None:
    falls = EvaluationRecord(1, "local", 1.0, 9.0, [9.0], [1], "rmse", False)
    assert falls.reaches(10.0) is RMSE.reaches(9.0, 10.0) is True
    assert falls.reaches(8.0) is RMSE.reaches(9.0, 8.0) is False

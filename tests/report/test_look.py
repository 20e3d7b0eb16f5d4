"""What a designer would see: nothing lies on something else, and nothing is cut off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import made_up
import pytest
from browser import Page, table

from srpfl.report import write_report
from srpfl.runs.run import Run

# Pairs of words that lie on each other, or stick out of their chart.
CLASHES = """[...document.querySelectorAll("svg.plot")].flatMap((chart) => {
  const frame = chart.getBoundingClientRect();
  const words = [...chart.querySelectorAll("text")].map((node) => [node.textContent, node.getBoundingClientRect()]);
  const outside = words.filter(([, a]) => a.left < frame.left - 1 || a.right > frame.right + 1 || a.top < frame.top - 1 || a.bottom > frame.bottom + 1);
  const apart = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1 || a.bottom <= b.top + 3 || b.bottom <= a.top + 3;
  const clashes = words.flatMap(([one, a], i) => words.slice(i + 1).filter(([, b]) => !apart(a, b)).map(([other]) => `${one} / ${other}`));
  return [...outside.map(([one]) => `${one} is cut off`), ...clashes];
})"""  # noqa: E501
HEIGHTS = """[...document.querySelectorAll("{}")].flatMap((path) =>
  path.getAttribute("d").slice(1).replace("Z", "").split("L").map((at) => Number(at.split(" ")[1])))
"""


def opened(page: Page, runs: list[Run], folder: Path) -> None:
    page.open(write_report(runs, folder / "report.html").as_uri())
    assert page.complaints == []


def seeds(metric: str = "accuracy") -> list[Run]:
    """Three of each method, which end far from each other."""
    apart = 0.1 if metric == "accuracy" else 1.0
    return [
        worse(made_up.run(name, seed=seed, metric=metric), apart * seed)
        for name in ("fedrep", "srpfl")
        for seed in range(3)
    ]


def worse(run: Run, less: float) -> Run:
    records = [
        replace(each, value=each.value - less, clients=[value - less for value in each.clients])
        for each in run.evaluations
    ]
    return replace(run, evaluations=records)


@pytest.mark.parametrize("width", [390, 800, 1400])
@pytest.mark.parametrize("metric", ["accuracy", "rmse"])
def test_no_words_of_a_chart_lie_on_others_or_are_cut_off(
    page: Page, tmp_path: Path, metric: str, width: int
) -> None:
    names = made_up.METHODS if metric == "accuracy" else ["fedrep", "srpfl"]
    page.resize(width, 900)
    try:
        opened(page, [made_up.run(name, metric=metric) for name in names], tmp_path)
        assert page.evaluate(CLASHES) == []
        assert page.evaluate("document.documentElement.scrollWidth") == width
    finally:
        page.resize(1280, 900)


def test_words_stand_at_the_end_of_their_line(page: Page, tmp_path: Path) -> None:
    """Lines that end at one height but at different times are not in each other's way."""
    opened(page, [made_up.run("fedrep"), made_up.run("srpfl")], tmp_path)
    for group in ("fedrep", "srpfl"):
        height = page.evaluate(HEIGHTS.format(f"#curves path.curve[data-group={group}]"))[-1]
        words = page.evaluate(
            "[...document.querySelectorAll('#curves text.end')]"
            f".find((node) => node.textContent === '{group}').getAttribute('y')"
        )
        assert float(words) - 4 == pytest.approx(height, abs=0.1)


@pytest.mark.parametrize("metric", ["accuracy", "rmse"])
def test_bands_stay_in_their_frame(page: Page, tmp_path: Path, metric: str) -> None:
    opened(page, seeds(metric), tmp_path)
    for chart, bottom in (("curves", 340), ("gains", 260), ("tenths", 220)):
        heights = page.evaluate(HEIGHTS.format(f"#{chart} path.band"))
        assert min(heights) >= 9.9, chart
        assert max(heights) <= bottom + 0.1, chart


def test_a_single_evaluation_is_a_dot(page: Page, tmp_path: Path) -> None:
    """A live page has no more after its first one, and a line of one point cannot be seen."""
    runs = [made_up.run(name) for name in ("fedrep", "srpfl")]
    opened(page, [replace(run, evaluations=run.evaluations[-1:]) for run in runs], tmp_path)
    dots = "document.querySelectorAll('#{} circle:not([visibility] *)').length"
    assert page.evaluate(dots.format("curves")) == 2
    assert page.evaluate(dots.format("gains")) == 3  # one for each C


def test_the_band_of_a_ratio_is_a_factor(page: Page, tmp_path: Path) -> None:
    opened(page, seeds(), tmp_path)
    up, down = page.evaluate("[above, below].map((of) => of({ speedup: 4, spread: 4 }))")
    assert (up, down) == (8, 2)  # and not 0, which no logarithmic axis has


def test_one_method_is_not_compared_with_itself(page: Page, tmp_path: Path) -> None:
    opened(page, [made_up.run("srpfl")], tmp_path)
    assert page.evaluate("byId('pair').hidden && byId('gain').hidden")
    assert table(page, "gains") == []


def test_methods_that_do_not_come_to_the_target_have_no_speedup(page: Page, tmp_path: Path) -> None:
    slow = made_up.run("flanp", first=0.0)
    opened(page, [made_up.run("fedrep"), made_up.run("srpfl"), slow], tmp_path)
    assert [row[0] for row in table(page)] == ["fedrep", "srpfl", "flanp"]
    assert [row[0] for row in table(page, "gains")] == ["srpfl"]


def test_charts_in_a_row_begin_at_one_height(page: Page, tmp_path: Path) -> None:
    runs = [made_up.run(name) for name in made_up.METHODS]
    opened(page, [*runs, made_up.run("fedavg-ft", seed=1)], tmp_path)  # one has a longer name
    tops = page.evaluate(
        "[...document.querySelectorAll('#clients > div')].slice(0, 3)"
        ".map((panel) => panel.querySelector('canvas').offsetTop)"
    )
    assert len(tops) == 3
    assert len(set(tops)) == 1


def test_a_mean_and_its_deviation_have_the_same_decimals(page: Page, tmp_path: Path) -> None:
    opened(page, [made_up.run("srpfl")], tmp_path)
    for value, spread, digits, told in (
        (422.9, 84.1, 4, "423 ± 84"),
        (0.3169, 0.1996, 4, "0.32 ± 0.20"),
        (1.0912, 0.0491, 3, "1.09 ± 0.05"),
        (3803.2, 244.9, 4, "3803 ± 245"),
        (0.5, 0, 4, "0.5"),
    ):
        assert page.evaluate(f"withSpread({value}, {spread}, {digits})") == told

"""Draws the pictures of README and docs: `make pictures`, from the runs of `srpfl demo` and the
committed records of CIFAR-10.

With a name and a target after the folder of runs, only screenshots of their report are taken.
Screenshots need Chromium and are left as they are without it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from browser import browser, chromium  # the tests' own: make puts their folder on the path
from matplotlib import rc_context
from matplotlib.figure import Figure
from PIL import Image

import srpfl
from srpfl.cli.compare import COSTS
from srpfl.cli.compare import draw as draw_comparison
from srpfl.report import find_runs, write_report
from srpfl.report.drawing import INK, RC, save
from srpfl.report.plots import answers_by_round, clients_by_speed, metric_panel, speedup_panel
from srpfl.runs.comparison import by_group, compare
from srpfl.runs.results import Results

IMAGES = Path(__file__).parent / "images"
PAIR = ("fedrep", "srpfl")
ROUND = 40  # of fedrep, whose accuracy is the target


def draw(folder: Path) -> None:
    runs = [srpfl.Run.load(path) for path in find_runs([folder])]
    result = compare(runs, communication=COSTS)
    draw_comparison(runs, result, IMAGES / "demo-accuracy.png")
    answers_by_round(runs, path=IMAGES / "demo-rounds.png")
    clients_by_speed(runs, path=IMAGES / "demo-clients.png")
    data = srpfl.data.load("digits", clients=50, partition=srpfl.data.Shards(3), seed=0)
    srpfl.data.draw(data, IMAGES / "demo-partition.png")


def headline(folder: Path) -> None:
    """The README's picture: fedrep and srpfl at C = 0 with the gap between them, and how that
    depends on the target and on C."""
    runs = [srpfl.Run.load(folder / f"{method}-seed{seed}") for method in PAIR for seed in range(3)]
    groups = by_group(runs)
    waiting, quick = (groups[method] for method in PAIR)
    targets = [next(p.value for p in run.scores if p.round == ROUND) for run in waiting]
    goal = fmean(targets)
    late, soon = (fmean(times(group, targets)) for group in (waiting, quick))
    with rc_context(RC):
        figure = Figure(figsize=(11, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    metric_panel(left, runs, 0.0, target=goal)
    left.set_title("CIFAR-10, 100 clients, three seeds, C = 0")
    left.annotate("", (soon, 100 * goal), (late, 100 * goal),
                  arrowprops={"arrowstyle": "<->", "color": INK, "linewidth": 1.4})  # fmt: skip
    told = f"{late / soon:.1f} times sooner at this target"
    left.annotate(told, (late, 100 * goal), (8, -6), textcoords="offset points", va="top",
                  fontsize="large", fontweight="bold")  # fmt: skip
    speedup_panel(right, groups, *PAIR, COSTS, goal)
    right.set_title("the same for other targets and costs C")
    save(figure, IMAGES / "headline.png")


def times(runs: Sequence[Results], targets: Sequence[float]) -> list[float]:
    """When each seed's run comes to its target."""
    found = [run.time_to(t, communication=0.0) for run, t in zip(runs, targets, strict=True)]
    assert all(found)
    return [time for time in found if time is not None]


def screenshots(folder: Path, name: str, *, upto: str, target: float | None = None) -> None:
    """The report of some runs, on light and on dark ground, with the mouse on the curves."""
    program = chromium()
    if program is None:
        print("there is no Chromium: the screenshots stay as they are")
        return
    with tempfile.TemporaryDirectory() as place, browser(program) as page:
        report = write_report(find_runs([folder]), Path(place) / "report.html", target=target)
        for ground in ("light", "dark"):
            page.resize(1280, 900, dark=ground == "dark")
            page.open(report.as_uri())
            page.resize(1280, page.evaluate(f"byId('{upto}').offsetTop"), dark=ground == "dark")
            page.hover("#curves svg", 0.3, 0.35)
            file = IMAGES / f"{name}-{ground}.png"
            page.screenshot(file)
            Image.open(file).convert("RGB").quantize(256).save(file, optimize=True)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        headline(Path(__file__).parents[1] / "results" / "fig3" / "cifar10")
        draw(Path(sys.argv[1]))
        screenshots(Path(sys.argv[1]), "report", upto="fairness")
    else:
        folder, name, target = sys.argv[1:]
        screenshots(Path(folder), name, upto="rounds", target=float(target))

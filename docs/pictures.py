"""Draws the pictures of README and docs: `make pictures`, from the runs of `srpfl demo`.

With a name and a target after the folder of runs, only screenshots of their report are taken.
Screenshots need Chromium and are left as they are without it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from browser import browser, chromium  # the tests' own: make puts their folder on the path
from PIL import Image

import srpfl
from srpfl.cli.compare import COSTS
from srpfl.cli.compare import draw as draw_comparison
from srpfl.report import find_runs, write_report
from srpfl.report.plots import answers_by_round, clients_by_speed
from srpfl.runs.comparison import compare

IMAGES = Path(__file__).parent / "images"


def draw(folder: Path) -> None:
    runs = [srpfl.Run.load(path) for path in find_runs([folder])]
    result = compare(runs, communication=COSTS)
    draw_comparison(runs, result, IMAGES / "demo-accuracy.png")
    answers_by_round(runs, path=IMAGES / "demo-rounds.png")
    clients_by_speed(runs, path=IMAGES / "demo-clients.png")
    data = srpfl.data.load("digits", clients=50, partition=srpfl.data.Shards(3), seed=0)
    srpfl.data.draw(data, IMAGES / "demo-partition.png")


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
        draw(Path(sys.argv[1]))
        screenshots(Path(sys.argv[1]), "report", upto="fairness")
    else:
        folder, name, target = sys.argv[1:]
        screenshots(Path(folder), name, upto="rounds", target=float(target))

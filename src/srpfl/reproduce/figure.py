"""The paper's arrangement: a row for each C, a column for each data set, accuracy against time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srpfl.options.methods import METHODS
from srpfl.report.drawing import DASHED, band, colour, panels, save
from srpfl.report.style import slot_of
from srpfl.report.units import time_unit
from srpfl.reproduce.summary import COSTS, Curve, curves
from srpfl.runs.run import Run
from srpfl.runs.seeds import mean_curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(columns: Mapping[str, Sequence[Run]], path: Path, *, title: str) -> Figure:
    """Draw all panels; the band is one standard deviation over seeds."""
    count = len(COSTS) * len(columns)
    figure, axes = panels(count, size=(3.4, 2.7), across=len(columns), share_y=False)
    for column, (dataset, runs) in enumerate(columns.items()):
        shown = curves(runs)
        for row, cost in enumerate(COSTS):
            panel = axes[row * len(columns) + column]
            for curve in shown:
                _plot(panel, curve, cost)
            panel.set_xlim(0, _shortest_of_the_waiting(shown, cost))
            panel.set_title(f"{dataset}, C = {cost:g}")
            if column == 0:
                panel.set_ylabel("accuracy (%)")
        panel.set_xlabel(f"simulated time ({time_unit(runs)})")
    known = {}  # a method may be missing in some column
    for panel in axes[: len(columns)]:
        handles, labels = panel.get_legend_handles_labels()
        known.update(dict(zip(labels, handles, strict=True)))
    names = [name for name in METHODS if name in known]
    legend = [known[name] for name in names]
    figure.legend(legend, names, loc="outside right center", frameon=False)
    figure.suptitle(title)
    save(figure, path)
    return figure


def _plot(panel: Any, curve: Curve, cost: float) -> None:
    points = mean_curve([curve.evaluations(run) for run in curve.runs], cost)
    ink = colour(slot_of(curve.name))
    x = [point.time for point in points]
    y = [100 * point.value for point in points]
    line = DASHED if _waits(curve) else "-"
    panel.plot(x, y, color=ink, linestyle=line, label=curve.name)
    band(panel, x, y, [100 * point.spread for point in points], ink)


def _waits(curve: Curve) -> bool:
    return METHODS[curve.name].participation == "everyone"


def _shortest_of_the_waiting(shown: Sequence[Curve], cost: float) -> float:
    """Where to end the axis: at 60 % of the time that waiting for everyone takes, so that the
    beginning, where the methods differ, can be seen."""
    waiting = [c for c in shown if _waits(c)] or list(shown)
    return 0.6 * min(run.time(cost) for curve in waiting for run in curve.runs)

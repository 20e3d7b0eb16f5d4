"""The paper's panels, accuracy against time: a row for each data set, a column for each C."""

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


def draw(rows: Mapping[str, Sequence[Run]], path: Path, *, title: str) -> Figure:
    """Draw all panels; the band is one standard deviation over seeds."""
    size = (3.4, 2.7)
    figure, axes = panels(len(COSTS) * len(rows), size=size, across=len(COSTS), share_y=False)
    for row, (dataset, runs) in enumerate(rows.items()):
        shown = curves(runs)
        for column, cost in enumerate(COSTS):
            panel = axes[row * len(COSTS) + column]
            for curve in shown:
                _plot(panel, curve, cost)
            panel.set_xlim(0, _shortest_of_the_waiting(shown, cost))
            panel.set_title(f"{dataset}, C = {cost:g}")
            if column == 0:
                panel.set_ylabel("accuracy (%)")
    known = {}  # a method may be missing in some row
    for panel in axes[:: len(COSTS)]:
        handles, labels = panel.get_legend_handles_labels()
        known.update(dict(zip(labels, handles, strict=True)))
    names = [name for name in METHODS if name in known]
    legend = [known[name] for name in names]
    figure.legend(legend, names, loc="outside right center", frameon=False)
    unit = time_unit([run for runs in rows.values() for run in runs])
    figure.supxlabel(f"simulated time ({unit})", fontsize="medium")
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

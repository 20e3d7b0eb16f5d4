"""The paper's arrangement: a row for each C, a column for each data set, accuracy against time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from srpfl.methods import METHODS
from srpfl.report.plots import save_figure
from srpfl.reproduce.summary import COSTS, Curve, curves
from srpfl.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# One colour per algorithm; the adaptive twin has a full line where the other's is dashed.
COLOURS = {
    "fedrep": "#0072B2",
    "srpfl": "#0072B2",
    "lg-fedavg": "#009E73",
    "lg-srpfl": "#009E73",
    "fedavg": "#E69F00",
    "flanp": "#E69F00",
    "fedavg-ft": "#D55E00",
    "flanp-ft": "#D55E00",
    "hf-maml": "#CC79A7",
}
ADAPTIVE = {"srpfl", "lg-srpfl", "flanp", "flanp-ft"}


def draw(panels: Mapping[str, Sequence[Run]], path: Path, *, title: str) -> Figure:
    """Draw all panels; the band is one standard deviation over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.5 + 3.4 * len(panels), 2.7 * len(COSTS)), layout="constrained")
    axes = figure.subplots(len(COSTS), len(panels), squeeze=False)
    for column, (dataset, runs) in enumerate(panels.items()):
        shown = curves(runs)
        for row, cost in enumerate(COSTS):
            panel = axes[row][column]
            for curve in shown:
                _plot(panel, curve, cost)
            panel.set_xlim(0, _shortest_of_the_waiting(shown, cost))
            panel.grid(alpha=0.25)
            panel.set_title(f"{dataset}, C = {cost:g}", fontsize=10)
            if column == 0:
                panel.set_ylabel("accuracy (%)")
        axes[-1][column].set_xlabel("simulated time")
    known = {}  # a method may be missing in some column
    for panel in axes[0]:
        handles, labels = panel.get_legend_handles_labels()
        known.update(dict(zip(labels, handles, strict=True)))
    names = [name for name in METHODS if name in known]
    legend = [known[name] for name in names]
    figure.legend(legend, names, loc="outside right center", frameon=False)
    figure.suptitle(title)
    save_figure(figure, path)
    return figure


def _plot(panel: Any, curve: Curve, cost: float) -> None:
    points = [curve.evaluations(run) for run in curve.runs]
    times = np.mean([[record.time(cost) for record in run] for run in points], axis=0)
    accuracy = 100 * np.array([[record.accuracy for record in run] for run in points])
    colour = COLOURS[curve.name]
    line = "-" if curve.name in ADAPTIVE else "--" if curve.name != "hf-maml" else ":"
    panel.plot(times, accuracy.mean(0), color=colour, linestyle=line, label=curve.name)
    if len(points) > 1:
        low, high = accuracy.mean(0) - accuracy.std(0), accuracy.mean(0) + accuracy.std(0)
        panel.fill_between(times, low, high, color=colour, alpha=0.15, linewidth=0)


def _shortest_of_the_waiting(shown: Sequence[Curve], cost: float) -> float:
    """Where to end the axis: at 60 % of the time that waiting for everyone takes, so that the
    beginning, where the methods differ, can be seen."""
    waiting = [c for c in shown if c.name not in ADAPTIVE] or list(shown)
    return 0.6 * min(run.time(cost) for curve in waiting for run in curve.runs)

"""Static plots, ready for a paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from srpfl.errors import RunFolderError
from srpfl.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours: readers with any colour vision can tell them apart.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442"]
STYLES = ["-", "--", "-.", ":"]


def accuracy_against_time(
    runs: Sequence[Run],
    *,
    path: str | Path | None = None,
    communication: float | Sequence[float] = 0.0,
    target: float | None = None,
) -> Figure:
    """Accuracy against simulated time, a panel for each C; the more runs, the more curves."""
    from matplotlib.figure import Figure

    costs = [communication] if isinstance(communication, (int, float)) else list(communication)
    figure = Figure(figsize=(1 + 4.2 * len(costs), 3.6), layout="constrained")
    panels = figure.subplots(1, len(costs), squeeze=False, sharey=True)[0]
    for panel, cost in zip(panels, costs, strict=True):
        for place, run in enumerate(runs):
            curve = run.curve(communication=cost)
            panel.plot(
                [point.time for point in curve],
                [100 * point.mean for point in curve],
                label=run.name,
                color=COLOURS[place % len(COLOURS)],
                linestyle=STYLES[place // len(COLOURS) % len(STYLES)],
                linewidth=1.8,
            )
        if target is not None:
            panel.axhline(100 * target, color="grey", linewidth=0.8, linestyle=":")
        panel.set_xlabel("simulated time")
        panel.set_title(f"C = {cost:g}")
        panel.grid(alpha=0.25)
    panels[0].set_ylabel("accuracy (%)")
    panels[-1].legend(loc="lower right", frameon=False)
    if path is not None:
        save_figure(figure, Path(path))
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the format of its name's ending."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise RunFolderError(f"cannot write the picture {path}: {error}") from error

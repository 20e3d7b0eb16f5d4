"""Pictures of the study: time to the targets, and the n that Auto chose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from srpfl.report.drawing import DOTTED, INK, LATE, SOFT, panels, save, step
from srpfl.studies.auto_cells import CLOSE, FAR, Cell

WIDEST = 4.0  # ratio that is drawn


def draw_cells(table: Sequence[Cell], file: Path) -> None:
    """In which part of the cells each policy is within how much of the best in hindsight."""
    figure, (axes,) = panels(1, size=(6.4, 4))
    shares = [(place + 1) / len(table) for place in range(len(table))]
    for name in table[0].times:
        ours = name.startswith("auto")
        ratios = sorted(min(cell.ratio(name), 2 * WIDEST) for cell in table)
        axes.step(ratios, shares, where="post", color=INK if name == "auto" else SOFT,
                  linewidth=2.2 if name == "auto" else 0.9, alpha=1 if ours else 0.5,
                  linestyle="-" if name == "auto" or not ours else DOTTED)  # fmt: skip
    for bar in (CLOSE, FAR):
        axes.axvline(bar, color=LATE, linestyle=DOTTED, linewidth=0.9)
    axes.set_xscale("log")
    _tick(axes.set_xticks, [0.5, 1, CLOSE, FAR, 2, WIDEST])
    axes.minorticks_off()
    axes.set_xlim(0.5, WIDEST)
    axes.set_ylim(0, 1)
    axes.set_xlabel("time over that of the best in hindsight")
    axes.set_ylabel("part of the cells")
    axes.set_title("Auto (thick), Auto told the truth (dotted), the family (thin)")
    save(figure, file)


def draw_decisions(found: dict[str, Any], file: Path) -> None:
    """n, and what it was chosen by, round by round: the accounts of the first seed's runs."""
    figure, grid = panels(4, size=(5.6, 3.4), share_y=False)
    told: list[tuple[Axes, str, str]] = [
        (grid[1], "signal", "‖expected update‖²"),
        (grid[2], "noise", "variance of an answer"),
        (grid[3], "wait_all", "expected wait for everyone"),
    ]
    for place, (cost, runs) in enumerate(found["auto"].items()):
        waits = runs["waits"][0]
        rounds = range(1, len(waits) + 1)
        ink = step(place, len(found["auto"]))
        grid[0].step(rounds, waits, where="mid", color=ink, label=f"C = {cost}")
        for axes, name, label in told:
            axes.plot(rounds, [decision[name] for decision in runs["decisions"]], color=ink)
            axes.set_ylabel(label)
            axes.set_yscale("log")
    grid[0].set_ylabel("n, answers waited for")
    grid[0].legend(frameon=False)
    for axes in grid:
        axes.set_xlabel("round")
    save(figure, file)


def _tick(put: Callable[..., object], places: Sequence[float]) -> None:
    put(places, [f"{place:g}" for place in places])

"""Pictures of the study: time to the targets, and the n that Auto chose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from srpfl.report.drawing import ACROSS, DOTTED, INK, LATE, SOFT, panels, save, step
from srpfl.studies.auto_linear import TARGETS, Cell, Row


def draw_ratios(table: Sequence[Cell], file: Path) -> None:
    """Auto's time over the better of FedRep and the schedule, against C; one panel per setting."""
    clocks = list(dict.fromkeys(cell.clock for cell in table))
    numbers = sorted({cell.clients for cell in table})
    costs = sorted({cell.communication for cell in table})
    settings = [(clock, number) for clock in clocks for number in numbers]
    across = len(numbers) if 1 < len(numbers) <= ACROSS else min(ACROSS, len(settings))
    figure, grid = panels(len(settings), size=(4, 3), across=across)
    for axes, (clock, number) in zip(grid, settings, strict=True):
        axes.axhspan(0.01, 1, color=LATE, alpha=0.25, linewidth=0)  # faster than both
        axes.axhline(1, color=INK, linewidth=0.8)
        axes.axhline(1.15, color=SOFT, linewidth=0.9, linestyle=DOTTED)
        for place, (target, marker) in enumerate(zip(TARGETS, "os^", strict=True)):
            ratios = {
                cell.communication: cell.ratio
                for cell in table
                if (cell.clock, cell.clients, cell.target) == (clock, number, target)
            }
            places = [costs.index(cost) for cost in ratios]
            axes.plot(places, list(ratios.values()), marker=marker, label=f"{target:g} x floor",
                      color=step(place, len(TARGETS)))  # fmt: skip
        axes.set_yscale("log")
        _tick(axes.set_yticks, [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2])
        axes.minorticks_off()
        axes.set_ylim(0.015, 2.5)
        axes.set_xticks(range(len(costs)), [f"{cost:g}" for cost in costs])
        axes.set_title(f"{clock} speeds, N = {number}")
        axes.set_xlabel("cost of communication C")
    for axes in grid[::across]:
        axes.set_ylabel("Auto / the better one")
    grid[0].legend(frameon=False, loc="lower right")
    save(figure, file)


def draw_waits(rows: Sequence[Row], file: Path) -> None:
    """n against the round: Auto for every C and the schedule, first seed, the middle N."""
    clocks = list(dict.fromkeys(row.clock for row in rows))
    numbers = sorted({row.clients for row in rows})
    number, seed = numbers[len(numbers) // 2], min(row.seed for row in rows)
    figure, grid = panels(len(clocks))
    costs = sorted({row.communication or 0.0 for row in rows if row.method == "auto"})
    for axes, clock in zip(grid, clocks, strict=True):
        mine = [row for row in rows if (row.clock, row.clients, row.seed) == (clock, number, seed)]
        for row in sorted(mine, key=lambda row: row.communication or 0):
            if row.method == "auto":
                ink = step(costs.index(row.communication or 0.0), len(costs))
                label = f"Auto, C = {row.communication:g}"
                axes.step(*_steps(row), where="pre", color=ink, label=label)
            elif row.method == "schedule":
                axes.step(*_steps(row), where="pre", color=INK, linestyle=":", label="schedule")
        axes.set_xscale("symlog", linthresh=10)
        axes.set_xlim(0, sum(rounds for _, rounds in mine[0].waits))
        _tick(axes.set_xticks, [0, 5, 10, 20, 50, 100, 200, 400])
        axes.set_yscale("log", base=2)
        axes.set_xlabel("round")
        axes.set_title(f"{clock} speeds, N = {number}")
    grid[0].set_ylabel("n, answers waited for")
    grid[-1].legend(frameon=False, loc="lower right")
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


def _steps(row: Row) -> tuple[Any, list[int]]:
    counts = [n for n, rounds in row.waits for _ in range(rounds)]
    return np.arange(1, len(counts) + 1), counts


def _tick(put: Callable[..., object], places: Sequence[float]) -> None:
    put(places, [f"{place:g}" for place in places])

"""Pictures of the study: time to the targets, and the n that Auto chose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from srpfl.studies.auto_linear import TARGETS, Cell, Row
from srpfl.theory.plots import save


def draw_ratios(table: Sequence[Cell], file: Path) -> None:
    """Auto's time over the better of FedRep and the schedule, against C; one panel per setting."""
    clocks = list(dict.fromkeys(cell.clock for cell in table))
    numbers = sorted({cell.clients for cell in table})
    costs = sorted({cell.communication for cell in table})
    settings = [(clock, number) for clock in clocks for number in numbers]
    across = len(numbers) if len(numbers) > 1 else len(clocks)
    down = len(settings) // across
    figure = Figure(figsize=(4 * across, 3 * down + 0.5), layout="constrained")
    grid = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    for axes, (clock, number) in zip(grid.flat, settings, strict=True):
        axes.axhspan(0.01, 1, color="C2", alpha=0.08)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.axhline(1.15, color="C3", linewidth=0.8, linestyle=":")
        for target, marker in zip(TARGETS, "os^", strict=True):
            ratios = {
                cell.communication: cell.ratio
                for cell in table
                if (cell.clock, cell.clients, cell.target) == (clock, number, target)
            }
            places = [costs.index(cost) for cost in ratios]
            axes.plot(places, list(ratios.values()), marker=marker, label=f"{target:g} x floor")
        axes.set_yscale("log")
        _tick(axes.set_yticks, [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2])
        axes.minorticks_off()
        axes.set_ylim(0.015, 2.5)
        axes.set_xticks(range(len(costs)), [f"{cost:g}" for cost in costs])
        axes.set_title(f"{clock} speeds, N = {number}")
        axes.grid(alpha=0.3)
    for row in grid:
        row[0].set_ylabel("Auto / the better one")
    for axes in grid[-1]:
        axes.set_xlabel("cost of communication C")
    grid[0][0].legend(frameon=False, loc="lower right")
    save(figure, file)


def draw_waits(rows: Sequence[Row], file: Path) -> None:
    """n against the round: Auto for every C and the schedule, first seed, the middle N."""
    clocks = list(dict.fromkeys(row.clock for row in rows))
    numbers = sorted({row.clients for row in rows})
    number, seed = numbers[len(numbers) // 2], min(row.seed for row in rows)
    figure = Figure(figsize=(5 * len(clocks), 4), layout="constrained")
    panels = figure.subplots(1, len(clocks), sharey=True, squeeze=False)[0]
    for axes, clock in zip(panels, clocks, strict=True):
        mine = [row for row in rows if (row.clock, row.clients, row.seed) == (clock, number, seed)]
        for row in sorted(mine, key=lambda row: row.communication or 0):
            if row.method == "auto":
                axes.step(*_steps(row), where="pre", label=f"Auto, C = {row.communication:g}")
            elif row.method == "schedule":
                axes.step(*_steps(row), where="pre", color="black", linestyle=":", label="schedule")
        axes.set_xscale("symlog", linthresh=10)
        axes.set_xlim(0, sum(rounds for _, rounds in mine[0].waits))
        _tick(axes.set_xticks, [0, 5, 10, 20, 50, 100, 200, 400])
        axes.set_yscale("log", base=2)
        axes.set_xlabel("round")
        axes.set_title(f"{clock} speeds, N = {number}")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("n, answers waited for")
    panels[-1].legend(frameon=False, loc="lower right")
    save(figure, file)


def draw_decisions(found: dict[str, Any], file: Path) -> None:
    """n, and what it was chosen by, round by round: the accounts of the first seed's runs."""
    figure = Figure(figsize=(12, 7), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True)
    panels: list[tuple[Axes, str, str]] = [
        (grid[0][1], "signal", "‖expected update‖²"),
        (grid[1][0], "noise", "variance of an answer"),
        (grid[1][1], "wait_all", "expected wait for everyone"),
    ]
    for cost, runs in found["auto"].items():
        waits = runs["waits"][0]
        rounds = range(1, len(waits) + 1)
        grid[0][0].step(rounds, waits, where="mid", label=f"C = {cost}")
        for axes, name, label in panels:
            axes.plot(rounds, [decision[name] for decision in runs["decisions"]])
            axes.set_ylabel(label)
            axes.set_yscale("log")
    grid[0][0].set_ylabel("n, answers waited for")
    grid[0][0].legend(frameon=False)
    for axes in grid.flat:
        axes.grid(alpha=0.3)
    for axes in grid[1]:
        axes.set_xlabel("round")
    save(figure, file)


def _steps(row: Row) -> tuple[Any, list[int]]:
    counts = [n for n, rounds in row.waits for _ in range(rounds)]
    return np.arange(1, len(counts) + 1), counts


def _tick(put: Callable[..., object], places: Sequence[float]) -> None:
    put(places, [f"{place:g}" for place in places])

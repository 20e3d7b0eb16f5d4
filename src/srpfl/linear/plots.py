"""The distance to the true representation against time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from srpfl.linear.study import Pair, mean_times
from srpfl.report.drawing import (
    DASHED,
    DOTTED,
    SOFT,
    check_file,
    colour,
    panels,
    save,
)


def draw_distance(
    pairs: Sequence[Pair],
    communications: Sequence[float],
    file: Path,
    *,
    unit: str = "1 = mean time of a client",
) -> None:
    """One panel per C: the mean over seeds, with a band of one standard deviation. The dotted line
    is the mean target."""
    check_file(file)
    figure, grid = panels(len(communications))
    target = sum(pair.target for pair in pairs) / len(pairs)
    ink = colour(0)
    for axes, communication in zip(grid, communications, strict=True):
        for name, line, runs in (
            ("FedRep, waits for everyone", DASHED, [pair.fedrep for pair in pairs]),
            ("SRPFL", "-", [pair.srpfl for pair in pairs]),
        ):
            times = np.mean([[0.0, *one.time(communication)] for one in runs], axis=0)
            # On a logarithmic axis it is logarithms that have a mean and a deviation.
            logs = np.log([[one.initial_distance, *one.distance] for one in runs])
            middle, spread = logs.mean(0), logs.std(0)
            axes.plot(times, np.exp(middle), color=ink, linestyle=line, label=name)
            if len(runs) > 1:
                low, high = np.exp(middle - spread), np.exp(middle + spread)
                axes.fill_between(times, low, high, color=ink, alpha=0.15, linewidth=0)
        axes.axhline(target, color=SOFT, linewidth=0.9, linestyle=DOTTED)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        if reached := [time for time in mean_times(pairs, communication) if time]:
            axes.set_xlim(0, 2 * max(reached))  # what comes after is noise around the floor
        axes.set_xlabel(f"simulated time ({unit})")
        axes.set_title(f"C = {communication:g}")
    grid[0].set_ylabel("distance to B*")
    grid[0].legend(frameon=False)
    save(figure, file)

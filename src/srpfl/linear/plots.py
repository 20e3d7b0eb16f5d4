"""The distance to the true representation against time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from srpfl.linear.study import Pair, mean_times
from srpfl.theory.plots import save


def draw_distance(pairs: Sequence[Pair], communications: Sequence[float], file: Path) -> None:
    """One panel per C; one line per seed and method. The dotted line is the mean target."""
    figure = Figure(figsize=(5 * len(communications), 4), layout="constrained")
    panels = figure.subplots(1, len(communications), sharey=True, squeeze=False)[0]
    target = sum(pair.target for pair in pairs) / len(pairs)
    for axes, communication in zip(panels, communications, strict=True):
        for index, pair in enumerate(pairs):
            for name, one, color in (("FedRep", pair.fedrep, "C1"), ("SRPFL", pair.srpfl, "C0")):
                axes.plot(
                    [0.0, *one.time(communication)],
                    [one.initial_distance, *one.distance],
                    color=color,
                    alpha=max(0.3, 1 / len(pairs)),
                    label=name if index == 0 else None,
                )
        axes.axhline(target, color="black", linewidth=0.8, linestyle=":")
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        if reached := [time for time in mean_times(pairs, communication) if time]:
            axes.set_xlim(0, 2 * max(reached))  # what comes after is noise around the floor
        axes.set_xlabel("simulated time")
        axes.set_title(f"C = {communication:g}")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("distance to B*")
    for handle in panels[0].legend(frameon=False).legend_handles:
        handle.set_alpha(1)
    save(figure, file)

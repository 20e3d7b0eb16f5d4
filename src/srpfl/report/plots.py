"""Static plots in the report's style, ready for a paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from srpfl.errors import ConfigError
from srpfl.report.drawing import (
    ACROSS,
    DASHED,
    DOTTED,
    INK,
    LATE,
    SOFT,
    band,
    dot,
    label_ends,
    panels,
    save,
    step,
)
from srpfl.report.style import styles
from srpfl.report.units import time_unit
from srpfl.runs.clients import client_rows, halves
from srpfl.runs.comparison import by_group, common_metric, reference
from srpfl.runs.race import gains, played_at
from srpfl.runs.results import Results
from srpfl.runs.seeds import mean_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def metric_against_time(
    runs: Sequence[Results],
    *,
    path: str | Path | None = None,
    communication: float | Sequence[float] = 0.0,
    target: float | None = None,
) -> Figure:
    """The metric against simulated time, a panel for each C. Several seeds of a method are drawn as
    their mean, with a band of one standard deviation.

    A run whose policy looked at C is drawn only at the C that it was played with.
    """
    common_metric(runs)
    costs = [communication] if isinstance(communication, (int, float)) else list(communication)
    figure, axes = panels(len(costs))
    for panel, cost in zip(axes, costs, strict=True):
        metric_panel(panel, runs, cost, target=target)
    return _done(figure, path)


def comparison(
    runs: Sequence[Results],
    *,
    path: str | Path | None = None,
    communication: Sequence[float] = (0.0, 10.0, 100.0),
    target: float | None = None,
    baseline: str | None = None,
) -> Figure:
    """The metric against time for each C, and the speed-up of the reference pair against the
    target."""
    common_metric(runs)
    groups = by_group(runs)
    base, other = reference(groups, baseline)
    count = len(communication) + (other is not None)
    figure, axes = panels(count, share_y=False)
    for panel, cost in zip(axes, communication, strict=False):
        metric_panel(panel, runs, cost, target=target)
    if other is not None:
        speedup_panel(axes[-1], groups, base, other, communication, target)
    return _done(figure, path)


def speedup_against_target(
    runs: Sequence[Results],
    *,
    path: str | Path | None = None,
    communication: Sequence[float] = (0.0, 10.0, 100.0),
    baseline: str | None = None,
) -> Figure:
    """How many times sooner a method reaches each target than the baseline: a curve for each C,
    with a band of one standard deviation over seeds."""
    common_metric(runs)
    groups = by_group(runs)
    base, other = reference(groups, baseline)
    if other is None:
        raise ConfigError("a speed-up needs two methods: name runs of another one")
    figure, axes = panels(1, size=(5.6, 3.8))
    speedup_panel(axes[0], groups, base, other, communication, None)
    return _done(figure, path)


def metric_panel(
    panel: Axes,
    runs: Sequence[Results],
    cost: float,
    *,
    target: float | None = None,
    label: bool = True,
) -> None:
    """The metric against time in one panel, with words at the ends of the lines if asked for."""
    metric = common_metric(runs)
    real = all(run.real for run in runs)
    looks = {look.group: look for look in styles(runs)}
    ends = []
    for group, mine in by_group(runs).items():
        look = looks[group]
        if not played_at(mine, cost):
            continue
        records = [[e for e in run.evaluations if e.kind == run.headline] for run in mine]
        points = mean_curve(records, cost)
        if not points:
            continue
        x = [point.time for point in points]
        y = [metric.scale * point.value for point in points]
        panel.plot(x, y, label=group, color=look.light, linestyle=DASHED if look.waits else "-",
                   marker=look.mark or dot(x), markersize=4,
                   markevery=max(1, len(x) // 8))  # fmt: skip
        band(panel, x, y, [metric.scale * point.spread for point in points], look.light)
        ends.append((x[-1], y[-1], group, look.light))
    if target is not None:
        panel.axhline(metric.scale * target, color=SOFT, linewidth=0.9, linestyle=DOTTED)
    panel.set_xlabel(f"{'time' if real else 'simulated time'} ({time_unit(runs)})")
    panel.set_ylabel(metric.axis)
    panel.set_xlim(left=0)
    if label:
        panel.set_title("" if real else f"C = {cost:g}")
        label_ends(panel, ends)


def speedup_panel(
    panel: Axes,
    groups: Mapping[str, Sequence[Results]],
    base: str,
    other: str,
    costs: Sequence[float],
    target: float | None,
) -> None:
    """The speed-up against the target in one panel, with a curve for each C."""
    metric = groups[base][0].judged_by
    ends = []
    for place, cost in enumerate(costs):
        points = gains(groups[base], groups[other], cost, target)
        if not points:
            continue
        ink = step(place, len(costs))
        x = [metric.scale * at for at, _ in points]
        y = [each.speedup for _, each in points]
        panel.plot(x, y, color=ink, drawstyle="steps-post", marker=dot(x), markersize=4)
        band(panel, x, y, [each.spread for _, each in points], ink, ratio=True)
        ends.append((x[-1], y[-1], f"C = {cost:g}", ink))
    panel.axhline(1, color=INK, linewidth=0.8)
    if target is not None:
        panel.axvline(metric.scale * target, color=SOFT, linewidth=0.9, linestyle=DOTTED)
    panel.set_yscale("log")
    low, high = panel.get_ylim()
    panel.set_ylim(max(low, 0.05), high)
    ticks = [f * 10.0**e for e in range(-2, 4) for f in (1, 2, 5)]
    inside = [tick for tick in ticks if panel.get_ylim()[0] <= tick <= high]
    panel.set_yticks(inside, [f"{tick:g}" for tick in inside])
    panel.minorticks_off()
    if not metric.higher_is_better:
        panel.invert_xaxis()
    panel.set_xlabel(f"target: {metric.axis}")
    panel.set_ylabel(f"times sooner than {base}")
    panel.set_title(f"speed-up of {other}")
    label_ends(panel, ends)


def answers_by_round(runs: Sequence[Results], *, path: str | Path | None = None) -> Figure:
    """When each client answered in each round, who counted, and when the server continued."""
    figure, axes = panels(len(runs), size=(4.6, 3.4))
    for panel, run, look in zip(axes, runs, styles(runs), strict=True):
        for clients, colour, name in (("late_arrivals", LATE, "too late"),
                                      ("arrivals", look.light, "counted")):  # fmt: skip
            dots = [(r.round, time) for r in run.rounds for time in getattr(r, clients)]
            if dots:
                x, y = zip(*dots, strict=True)
                panel.scatter(x, y, s=5, marker="s", color=colour,
                              linewidths=0, label=name, rasterized=True)  # fmt: skip
        edges = [0.5 + place for place in range(len(run.rounds) + 1)]
        panel.stairs([r.duration for r in run.rounds], edges, color=INK, linewidth=1.3,
                     baseline=None, label="server continues")  # fmt: skip
        _stages(panel, run)
        panel.set(xlabel="round", xlim=(0.5, len(run.rounds) + 0.5), ylim=(0, None))
        panel.set_title(look.label, pad=18)
        panel.set_ylabel(f"answer after ({time_unit(runs)})")
    axes[-1].legend(loc="upper left", bbox_to_anchor=(1, 1), markerscale=3, frameon=False)
    return _done(figure, path)


def clients_by_speed(runs: Sequence[Results], *, path: str | Path | None = None) -> Figure:
    """The metric and participation of each client, from the fastest to the slowest."""
    metric = common_metric(runs)
    # Two panels for each run, one above the other: three runs in a row.
    across = min(len(runs), ACROSS)
    rows_of = [list(range(at, min(at + across, len(runs)))) for at in range(0, len(runs), across)]
    figure, axes = panels(2 * across * len(rows_of), size=(4.2, 2.1), across=across)
    spare = set(range(len(axes)))
    for place, (run, look) in enumerate(zip(runs, styles(runs), strict=True)):
        first = 2 * across * (place // across) + place % across
        above, below = axes[first], axes[first + across]
        spare -= {first, first + across}
        rows = client_rows(run)
        ranks = list(range(1, len(rows) + 1))
        seen = [(rank, metric.scale * row.value) for rank, row in zip(ranks, rows, strict=True)
                if row.value is not None]  # fmt: skip
        if seen:
            x, y = zip(*seen, strict=True)
            above.scatter(x, y, s=14, color=look.light, linewidths=0)
            half = len(rows) // 2
            fast, slow = halves(run)
            for mean, left in ((fast, 0.5), (slow, len(rows) - half + 0.5)):
                if mean is not None:
                    above.hlines(metric.scale * mean, left, left + half, color=INK, linewidth=1.3)
        above.set(title=look.label, xlim=(0.5, len(rows) + 0.5))
        if metric.is_share:
            above.set(ylim=(0, 103))
        elif seen and min(y) >= 0:
            above.set(ylim=(0, None))
        counted = [row.counted for row in rows]
        below.bar(ranks, counted, width=0.9, color=look.light, label="counted")
        below.bar(ranks, [row.late for row in rows], width=0.9, bottom=counted, color=LATE,
                  label="late")  # fmt: skip
        below.set(xlabel="clients, fastest to slowest", xlim=(0.5, len(rows) + 0.5))
        above.set_ylabel(metric.axis)
        below.set_ylabel("rounds")
    below.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    for place in spare:
        axes[place].remove()
    return _done(figure, path)


PLOTS = {
    "metric": metric_against_time,
    "rounds": answers_by_round,
    "clients": clients_by_speed,
}


def _done(figure: Figure, path: str | Path | None) -> Figure:
    if path is not None:
        save(figure, Path(path))
    return figure


def _stages(panel: Axes, run: Results) -> None:
    """Borders between stages, with the n of each above them."""
    before: tuple[int, int] | None = None
    for record in run.rounds:
        if (record.stage, record.wait) == before:
            continue
        if before is not None:
            panel.axvline(record.round - 0.5, color="#9aa4b2", linewidth=0.8, linestyle=(0, (3, 3)))
        panel.annotate(f"n = {record.wait}", (record.round - 0.5, 1), (2, 3), fontsize="x-small",
                       xycoords=("data", "axes fraction"),
                       textcoords="offset points")  # fmt: skip
        before = (record.stage, record.wait)

"""Static plots in the report's style, ready for a paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srpfl.errors import RunFolderError
from srpfl.report.content import client_rows, halves, time_unit
from srpfl.report.style import Style, styles
from srpfl.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LATE = "#b4bac6"
INK = "#1c2330"
RC: dict[Any, Any] = {  # matplotlib's stubs know the names of its settings only as literals
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e7ec",
    "grid.linewidth": 0.8,
    "axes.edgecolor": "#9aa4b2",
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": "#5a6475",
    "ytick.color": "#5a6475",
    "axes.titlesize": "medium",
    "svg.fonttype": "none",  # text stays text
    "pdf.fonttype": 42,  # as journals want it
}


def accuracy_against_time(
    runs: Sequence[Run],
    *,
    path: str | Path | None = None,
    communication: float | Sequence[float] = 0.0,
    target: float | None = None,
) -> Figure:
    """Accuracy against simulated time, a panel for each C. Seeds of a method share its colour.

    A run whose policy looked at C is drawn only at the C that it was played with.
    """
    costs = [communication] if isinstance(communication, (int, float)) else list(communication)
    figure, panels = _figure(len(costs), width=1 + 4.2 * len(costs), height=3.6)
    for panel, cost in zip(panels, costs, strict=True):
        told: set[str] = set()
        for run, look in zip(runs, styles(runs), strict=True):
            if run.config.get("sees_communication") and cost != run.communication:
                continue
            curve = run.curve(communication=cost)
            panel.plot(
                [point.time for point in curve],
                [100 * point.mean for point in curve],
                label=look.group if look.group not in told else None,
                color=look.light,
                linestyle=_dashes(look),
                linewidth=1.8,
            )
            told.add(look.group)
        if target is not None:
            panel.axhline(100 * target, color="#5a6475", linewidth=0.9, linestyle=(0, (1, 3)))
        noun = "time" if all(run.real for run in runs) else "simulated time"
        panel.set_xlabel(f"{noun} ({time_unit(runs)})")
        panel.set_title("" if all(run.real for run in runs) else f"C = {cost:g}")
        panel.set_xlim(left=0)
    panels[0].set_ylabel("accuracy (%)")
    panels[-1].legend(loc="lower right", frameon=False)
    return _done(figure, path)


def answers_by_round(runs: Sequence[Run], *, path: str | Path | None = None) -> Figure:
    """When each client answered in each round, who counted, and when the server went on."""
    figure, panels = _figure(len(runs), width=1 + 4.6 * len(runs), height=3.4)
    for panel, run, look in zip(panels, runs, styles(runs), strict=True):
        for clients, colour, name in (("late_arrivals", LATE, "too late"),
                                      ("arrivals", look.light, "counted")):  # fmt: skip
            dots = [(r.round, time) for r in run.rounds for time in getattr(r, clients)]
            if dots:
                x, y = zip(*dots, strict=True)
                panel.scatter(x, y, s=5, marker="s", color=colour,
                              linewidths=0, label=name, rasterized=True)  # fmt: skip
        edges = [0.5 + place for place in range(len(run.rounds) + 1)]
        panel.stairs([r.duration for r in run.rounds], edges, color=INK, linewidth=1.3,
                     baseline=None, label="server goes on")  # fmt: skip
        _stages(panel, run)
        panel.set(xlabel="round", xlim=(0.5, len(run.rounds) + 0.5), ylim=(0, None))
        panel.set_title(look.label, pad=18)
    panels[0].set_ylabel(f"answer after ({time_unit(runs)})")
    panels[-1].legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, markerscale=3)
    return _done(figure, path)


def clients_by_speed(runs: Sequence[Run], *, path: str | Path | None = None) -> Figure:
    """Accuracy and participation of each client, from the fastest to the slowest."""
    figure, panels = _figure(2 * len(runs), width=1 + 4.2 * len(runs), height=4.2, rows=2)
    for place, (run, look) in enumerate(zip(runs, styles(runs), strict=True)):
        above, below = panels[place], panels[len(runs) + place]
        rows = client_rows(run)
        ranks = list(range(1, len(rows) + 1))
        seen = [(rank, 100 * row.accuracy) for rank, row in zip(ranks, rows, strict=True)
                if row.accuracy is not None]  # fmt: skip
        if seen:
            x, y = zip(*seen, strict=True)
            above.scatter(x, y, s=14, color=look.light, linewidths=0)
            half = len(rows) // 2
            fast, slow = halves(rows)
            for mean, left in ((fast, 0.5), (slow, len(rows) - half + 0.5)):
                if mean is not None:
                    above.hlines(100 * mean, left, left + half, color=INK, linewidth=1.3)
        above.set(title=look.label, ylim=(0, 103), xlim=(0.5, len(rows) + 0.5))
        counted = [row.counted for row in rows]
        below.bar(ranks, counted, width=0.9, color=look.light, label="counted")
        below.bar(ranks, [row.late for row in rows], width=0.9, bottom=counted, color=LATE,
                  label="late")  # fmt: skip
        below.set(xlabel="clients, fastest to slowest", xlim=(0.5, len(rows) + 0.5))
    panels[0].set_ylabel("accuracy (%)")
    panels[len(runs)].set_ylabel("rounds")
    panels[-1].legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return _done(figure, path)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the format of its name's ending."""
    from matplotlib import rc_context

    # Without a date and with fixed names inside, the same run gives the same file.
    undated: dict[str, dict[str, Any]] = {
        ".svg": {"Date": None},
        ".pdf": {"CreationDate": None, "ModDate": None},
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with rc_context({**RC, "svg.hashsalt": "srpfl"}):
            figure.savefig(path, dpi=150, metadata=undated.get(path.suffix.lower()))
    except (OSError, ValueError) as error:
        raise RunFolderError(f"cannot write the picture {path}: {error}") from error


PLOTS = {
    "accuracy": accuracy_against_time,
    "rounds": answers_by_round,
    "clients": clients_by_speed,
}


def _figure(
    count: int, *, width: float, height: float, rows: int = 1
) -> tuple[Figure, Sequence[Axes]]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(RC):
        # The figure's own canvas and not pyplot: no window system, no global state.
        figure = Figure(figsize=(width, height), layout="constrained")
        panels = figure.subplots(rows, count // rows, squeeze=False, sharey="row")
    return figure, list(panels.flat)


def _done(figure: Figure, path: str | Path | None) -> Figure:
    if path is not None:
        save_figure(figure, Path(path))
    return figure


def _stages(panel: Axes, run: Run) -> None:
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


def _dashes(look: Style) -> Any:
    lengths = [float(part) / 2 for part in look.dash.split()]
    return (0, lengths) if lengths else "-"

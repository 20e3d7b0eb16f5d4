"""The table and the picture of the study of all methods."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from srpfl.report.drawing import INK, SOFT, colour, panels, save

Row = Mapping[str, Any]
TWIN = "everyone"
NAMES = {"everyone": "everyone", "doubling": "doubling", "auto": "Auto"}


def cells(rows: Sequence[Row]) -> dict[tuple[str, str, float], dict[str, Any]]:
    """Means over seeds by method, policy and C. A speed-up is the twin's time over this one's, the
    mean of the seeds'; nothing where a seed did not reach its target, or diverged. A run is short
    if it was over before its twin's end."""
    groups: dict[tuple[str, str, float], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["method"], row["policy"], row["C"]), []).append(row)
    by_seed = {(row["method"], row["policy"], row["C"], row["seed"]): row for row in rows}
    found: dict[tuple[str, str, float], dict[str, Any]] = {}
    for (method, policy, cost), mine in groups.items():
        if any(row.get("diverged") for row in mine):
            found[method, policy, cost] = {"diverged": True, "speedup": None}
            continue
        twins = [by_seed.get((method, TWIN, cost, row["seed"]), {}) for row in mine]
        pairs = [(t.get("time"), row.get("time")) for t, row in zip(twins, mine, strict=True)]
        ratios = [twin / own for twin, own in pairs if twin and own]
        short = any(
            row["end"] < twin.get("end", 0.0) for twin, row in zip(twins, mine, strict=True)
        )
        found[method, policy, cost] = {
            "final": fmean(row["final"] for row in mine),
            "gap": fmean(row["slow - fast"] for row in mine),
            "speedup": fmean(ratios) if len(ratios) == len(mine) else None,
            "seeds": len(mine),
            "short": short,
        }
    return found


def table(rows: Sequence[Row]) -> str:
    """Two tables in Markdown with a line per method: accuracy when everyone's run ends, and how
    much sooner the target was reached."""
    found = cells(rows)
    methods = list(dict.fromkeys(row["method"] for row in rows))
    policies = [p for p in NAMES if any(row["policy"] == p for row in rows)]
    costs = sorted({row["C"] for row in rows})
    adaptive = [(p, cost) for p in policies if p != TWIN for cost in costs]
    ends = [(TWIN, costs[0]), *adaptive]
    gaps = [(policy, costs[0]) for policy in policies]
    heads = [[_head(*each) for each in ends]]
    heads += [[f"{NAMES[p]}: slow half − fast half" for p, _ in gaps]]
    heads[1] += [f"{_head(*each)}: times faster" for each in adaptive]
    lines: list[list[list[str]]] = [[], []]
    for method in methods:
        cell = {each: found.get((method, *each), {}) for each in (*ends, *gaps)}
        lines[0].append([method, *(_percent(cell[each]) for each in ends)])
        faster = [_times(cell[each]) for each in adaptive]
        lines[1].append([method, *(_points(cell[each]) for each in gaps), *faster])
    return "\n".join(_markdown(["method", *h], each) for h, each in zip(heads, lines, strict=True))


def ranking(rows: Sequence[Row]) -> str:
    """One table in Markdown of what everyone's runs come to, the best method first: the mean over
    seeds, their standard deviation, and each of them."""
    finals: dict[str, list[float]] = {}
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        finals.setdefault(row["method"], []).append(row.get("final", math.nan))
    order = sorted(finals, key=lambda method: -_mean(finals[method]))
    lines = [
        [
            method,
            _hundredths(_mean(finals[method])),
            _hundredths(stdev(finals[method])) if len(finals[method]) > 1 else "–",
            ", ".join(map(_hundredths, finals[method])),
        ]
        for method in order
    ]
    return _markdown(["method", "mean", "deviation", "seeds"], lines)


def _mean(finals: Sequence[float]) -> float:
    """Below all others where a seed diverged."""
    return -math.inf if any(map(math.isnan, finals)) else fmean(finals)


def _hundredths(value: float) -> str:
    return f"{100 * value:.1f}" if math.isfinite(value) else "diverged"


def _head(policy: str, cost: float) -> str:
    return NAMES[policy] if policy == TWIN else f"{NAMES[policy]}, C = {cost:g}"


def _markdown(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    every = [heads, ["---"] * len(heads), *lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in every)


def draw(rows: Sequence[Row], file: Path) -> None:
    """Speed-ups over the twin by method, a panel for each C; below, final accuracies."""
    found = cells(rows)
    methods = list(dict.fromkeys(row["method"] for row in rows))
    policies = [p for p in NAMES if any(row["policy"] == p for row in rows)]
    adaptive = [policy for policy in policies if policy != TWIN]
    costs = sorted({row["C"] for row in rows}) if adaptive else []
    size = (max(5, 0.36 * len(methods) + 2), 2.6)
    figure, (*speeds_of, finals_of) = panels(
        len(costs) + 1, size=size, across=1, share_x=True, share_y=False
    )
    places = range(len(methods))
    for axes, cost in zip(speeds_of, costs, strict=True):
        axes.axhline(1, color=INK, linewidth=0.8)
        for k, policy in enumerate(adaptive):
            speeds = [found.get((m, policy, cost), {}).get("speedup") for m in methods]
            shift = 0.16 * (2 * k - len(adaptive) + 1)
            at = [place + shift for place, speed in zip(places, speeds, strict=True) if speed]
            axes.plot(at, [speed for speed in speeds if speed], "os"[k % 2], color=colour(k),
                      label=NAMES[policy])  # fmt: skip
            never = [p + shift for p, speed in zip(places, speeds, strict=True) if not speed]
            axes.plot(never, [0.35] * len(never), "x", color=colour(k))
        axes.set_yscale("log")
        axes.set_yticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
        axes.minorticks_off()
        axes.set_ylabel(f"times faster, C = {cost:g}")
    for k, policy in enumerate(policies):
        ends = [found.get((m, policy, min(row["C"] for row in rows)), {}) for m in methods]
        finals = [
            (p, cell["final"]) for p, cell in zip(places, ends, strict=True) if "final" in cell
        ]
        shares = [(place, 100 * final) for place, final in finals]
        finals_of.plot(*zip(*shares, strict=True), "^os"[k % 3], alpha=0.8,
                       color=SOFT if policy == TWIN else colour(k - 1),
                       label=NAMES[policy])  # fmt: skip
    finals_of.set_ylabel("final accuracy (%)")
    finals_of.set_xticks(places, methods, rotation=60, ha="right")
    finals_of.set_xlim(-0.6, len(methods) - 0.4)
    handles, labels = finals_of.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", frameon=False, ncols=len(policies))
    save(figure, file)


def _percent(cell: Row) -> str:
    if cell.get("diverged"):
        return "diverged"
    mark = "*" if cell.get("short") else ""  # over before the twin's end
    return f"{100 * cell['final']:.1f} %{mark}" if "final" in cell else "–"


def _points(cell: Row) -> str:
    return f"{100 * cell['gap']:+.1f}" if "gap" in cell else "–"


def _times(cell: Row) -> str:
    return f"{cell['speedup']:.1f}" if cell.get("speedup") else "never"

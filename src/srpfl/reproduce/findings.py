"""The paper's findings, each with the number that supports or contradicts it."""

from __future__ import annotations

from collections.abc import Sequence

from srpfl.options.methods import METHODS
from srpfl.reproduce.summary import Row


def findings(dataset: str, rows: Sequence[Row]) -> list[str]:
    """Sentences for one panel, as a list in Markdown; a finding that fails says so."""
    by_name = {row.method: row for row in rows}
    lines: list[str] = []
    for row in rows:
        twin = by_name.get(METHODS[row.method].twin or "")
        if twin is not None:
            lines += [_speed(row, twin), _accuracy(row, twin), _cost(row, twin)]
    lines += _ahead(by_name)
    lines += _flanp(by_name)
    lines += [_fairness(row) for row in rows if METHODS[row.method].twin]
    return [f"- {line}" for line in lines]


def _verdict(holds: bool) -> str:
    return "holds" if holds else "**does not hold**"


def _speed(row: Row, twin: Row) -> str:
    what = f"adaptive participation speeds up {twin.method} (C = 0)"
    speedup = row.speedup["0"]
    if speedup is None:
        return f"{what}: **not shown**, {row.method} did not reach {100 * row.target:.1f} %."
    return (
        f"{what}: {_verdict(speedup > 1)}, {row.method} reaches {100 * row.target:.1f} % "
        f"{speedup:.1f} times as fast."
    )


def _accuracy(row: Row, twin: Row) -> str:
    gap = 100 * (twin.final - row.final)
    return (
        f"nothing is lost at the end: {row.method} ends {abs(gap):.2f} points "
        f"{'below' if gap > 0 else 'above'} {twin.method}."
    )


def _cost(row: Row, twin: Row) -> str:
    free, costly = row.speedup["0"], row.speedup["100"]
    what = f"a high cost of communication hurts {row.method}"
    if free is None or costly is None:
        return f"{what}: **not shown**, the target was not reached."
    return f"{what}: {_verdict(costly < free)}, the speed-up falls from {free:.1f} to {costly:.2f}."


def _ahead(by_name: dict[str, Row]) -> list[str]:
    mine = by_name.get("srpfl")
    if mine is None or len(by_name) < 3:
        return []
    own = mine.common_time["0"]
    others = {n: r.common_time["0"] for n, r in by_name.items() if n != "srpfl"}
    faster = [n for n, time in others.items() if time and (own is None or time < own)]
    rivals = [name for name in by_name if name not in ("srpfl", "fedrep")]
    better = [name for name in rivals if by_name[name].final > mine.final]
    return [
        "srpfl is the first to reach fedrep's accuracy (C = 0): **not shown**."
        if own is None and not faster
        else f"srpfl is the first to reach fedrep's accuracy (C = 0): {_verdict(not faster)}"
        + (f", {', '.join(faster)} came before it." if faster else "."),
        f"srpfl ends above all others but its twin: {_verdict(not better)}"
        + (f", {', '.join(better)} ended above it." if better else "."),
    ]


def _flanp(by_name: dict[str, Row]) -> list[str]:
    mine, theirs = by_name.get("srpfl"), by_name.get("flanp-ft")
    if mine is None or theirs is None:
        return []
    gap = 100 * (mine.final - theirs.final)
    return [
        f"flanp-ft stays far behind srpfl (by five points): {_verdict(gap >= 5)}, it ends "
        f"{abs(gap):.2f} points {'below' if gap > 0 else 'above'}."
    ]


def _fairness(row: Row) -> str:
    gap = 100 * (row.fast_half - row.slow_half)
    return (
        f"slow clients are not worse off under {row.method}: {_verdict(gap <= 1)}, the slowest "
        f"half ends at {100 * row.slow_half:.2f} %, the fastest at {100 * row.fast_half:.2f} %."
    )

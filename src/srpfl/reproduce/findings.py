"""The paper's findings, each with the number that supports or contradicts it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from srpfl.options.methods import METHODS
from srpfl.reproduce.paired import Paired
from srpfl.reproduce.summary import Row

HALF = 0.5  # points at the end that count as nothing
HEAD = "| claim | holds | does not hold | not shown |"


@dataclass(frozen=True)
class Finding:
    """A claim of the paper in one panel."""

    claim: str
    holds: bool | None  # None: not shown
    number: str  # in few words
    sentence: str


def findings(dataset: str, rows: Sequence[Row]) -> list[str]:
    """Sentences for one panel, as a list in Markdown; a finding that fails says so."""
    return [f"- {found.sentence}" for found in found_in(rows)]


def found_in(rows: Sequence[Row], paired: Mapping[str, Paired] | None = None) -> list[Finding]:
    """The findings of one panel; ``paired`` has the methods that share seeds with their twin."""
    by_name = {row.method: row for row in rows}
    found: list[Finding] = []
    for row in rows:
        twin = by_name.get(METHODS[row.method].twin or "")
        if twin is not None:
            test = (paired or {}).get(row.method)
            found += [_speed(row, twin), _accuracy(row, twin, test), _cost(row, twin)]
    found += _ahead(by_name)
    found += _flanp(by_name)
    return found + [_fairness(row) for row in rows if METHODS[row.method].twin]


def claims_table(panels: Mapping[str, Sequence[Finding]]) -> Iterator[str]:
    """Each claim, and in which panels it holds, as lines in Markdown."""
    claims: dict[str, dict[bool | None, list[str]]] = {}
    for panel, found in panels.items():
        for each in found:
            text = f"{panel} {each.number}".strip()
            claims.setdefault(each.claim, {}).setdefault(each.holds, []).append(text)
    yield HEAD
    yield "|---|---|---|---|"
    for claim, by_verdict in claims.items():
        cells = ("; ".join(by_verdict.get(holds, [])) for holds in (True, False, None))
        yield f"| {claim} | {' | '.join(cells)} |"


def _verdict(holds: bool) -> str:
    return "holds" if holds else "**does not hold**"


def _speed(row: Row, twin: Row) -> Finding:
    claim = f"{row.method} is faster than {twin.method}, C = 0"
    what = f"adaptive participation speeds up {twin.method} (C = 0)"
    speedup = row.speedup["0"]
    if speedup is None:
        text = f"{what}: **not shown**, {row.method} did not reach {100 * row.target:.1f} %."
        return Finding(claim, None, "", text)
    text = (
        f"{what}: {_verdict(speedup > 1)}, {row.method} reaches {100 * row.target:.1f} % "
        f"{speedup:.1f} times as fast."
    )
    return Finding(claim, speedup > 1, f"{speedup:.1f}x", text)


def _accuracy(row: Row, twin: Row, paired: Paired | None) -> Finding:
    gap = 100 * (twin.final - row.final)
    text = (
        f"nothing is lost at the end: {row.method} ends {abs(gap):.2f} points "
        f"{'below' if gap > 0 else 'above'} {twin.method}."
    )
    claim = f"{row.method} ends where {twin.method} ends, or above (to half a point)"
    number = f"{100 * (row.final - twin.final):+.2f}"
    if paired is not None:
        number += f" ± {100 * paired.spread:.2f} ({paired.count} seeds, p = {paired.p:.2f})"
    return Finding(claim, gap <= HALF, number, text)


def _cost(row: Row, twin: Row) -> Finding:
    free, costly = row.speedup["0"], row.speedup["100"]
    what = f"a high cost of communication hurts {row.method}"
    if free is None or costly is None:
        return Finding(what, None, "", f"{what}: **not shown**, the target was not reached.")
    text = f"{what}: {_verdict(costly < free)}, the speed-up falls from {free:.1f} to {costly:.2f}."
    return Finding(what, costly < free, f"{free:.1f}x to {costly:.2f}x", text)


def _ahead(by_name: dict[str, Row]) -> list[Finding]:
    mine = by_name.get("srpfl")
    if mine is None or len(by_name) < 3:
        return []
    own = mine.common_time["0"]
    others = {n: r.common_time["0"] for n, r in by_name.items() if n != "srpfl"}
    faster = [n for n, time in others.items() if time and (own is None or time < own)]
    rivals = [name for name in by_name if name not in ("srpfl", "fedrep")]
    better = [name for name in rivals if by_name[name].final > mine.final]
    first = "srpfl is the first to reach fedrep's accuracy (C = 0)"
    shown = own is not None or bool(faster)
    above = "srpfl ends above all others but its twin"
    return [
        Finding(
            first,
            not faster if shown else None,
            _those(faster),
            f"{first}: {_verdict(not faster)}"
            + (f", {', '.join(faster)} came before it." if faster else ".")
            if shown
            else f"{first}: **not shown**.",
        ),
        Finding(
            above,
            not better,
            _those(better),
            f"{above}: {_verdict(not better)}"
            + (f", {', '.join(better)} ended above it." if better else "."),
        ),
    ]


def _those(names: Sequence[str]) -> str:
    return f"({', '.join(names)})" if names else ""


def _flanp(by_name: dict[str, Row]) -> list[Finding]:
    mine, theirs = by_name.get("srpfl"), by_name.get("flanp-ft")
    if mine is None or theirs is None:
        return []
    gap = 100 * (mine.final - theirs.final)
    claim = "flanp-ft stays far behind srpfl (by five points)"
    text = (
        f"{claim}: {_verdict(gap >= 5)}, it ends "
        f"{abs(gap):.2f} points {'below' if gap > 0 else 'above'}."
    )
    return [Finding(claim, gap >= 5, f"{100 * (theirs.final - mine.final):+.2f}", text)]


def _fairness(row: Row) -> Finding:
    gap = 100 * (row.fast_half - row.slow_half)
    claim = f"slow clients are not worse off under {row.method}"
    text = (
        f"{claim}: {_verdict(gap <= 1)}, the slowest "
        f"half ends at {100 * row.slow_half:.2f} %, the fastest at {100 * row.fast_half:.2f} %."
    )
    return Finding(claim, gap <= 1, f"{100 * (row.slow_half - row.fast_half):+.2f}", text)

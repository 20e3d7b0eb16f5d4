"""A comparison in words: a small table, and one sentence that says how much sooner, at which C, and
where it turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from srpfl.runs.metric import Metric

if TYPE_CHECKING:
    from srpfl.runs.comparison import Comparison

SAME = 1.05  # closer than this, nobody is ahead
EQUAL = "as soon"


def verdict(result: Comparison) -> str:
    """The reference pair in one sentence; empty where there is no pair.

    For example: srpfl reaches 89.7 % accuracy 5.8 times sooner than fedrep at C = 0 and 1.4 times
    later at C = 10; break-even near C = 3.2.
    """
    rows = {row.method: row for row in result.rows}
    if result.against is None:
        return ""
    base, row = rows[result.baseline], rows[result.against]
    metric = Metric(result.metric, result.higher_is_better)
    goal = metric.told(result.target)
    for one, other in ((row, base), (base, row)):
        if one.time_to_target and all(time is None for time in one.time_to_target.values()):
            also = all(time is None for time in other.time_to_target.values())
            if also and other.time_to_target:
                return f"Neither {base.method} nor {row.method} reaches {goal}."
            return f"{one.method} does not reach {goal}; {other.method} does."
    told = [(how, cost) for cost in row.speedup if (how := _how(row.speedup[cost]))]
    if not told:
        return f"{row.method} and {base.method} were not played at the same C."
    first = told[0][0]
    words = [f"{first} {'as' if first == EQUAL else 'than'} {base.method}"]
    words += [how if how != EQUAL else "equally soon" for how, _ in told[1:]]
    if not result.real:
        words = [f"{how} at C = {cost:g}" for how, (_, cost) in zip(words, told, strict=True)]
    listed = " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
    turn = row.break_even
    if turn is not None:
        listed += f"; break-even near C = {turn:.2g}" if turn < 1e4 else "; no break-even in sight"
    return f"{row.method} reaches {goal} {listed}."


def _how(speedup: float | None) -> str:
    if not speedup:
        return ""
    if 1 / SAME < speedup < SAME:
        return EQUAL
    ratio, word = (speedup, "sooner") if speedup > 1 else (1 / speedup, "later")
    return f"{ratio:.1f} times {word}" if ratio < 99.5 else f"{ratio:.0f} times {word}"


def table(result: Comparison) -> str:
    """A comparison as text."""
    metric = Metric(result.metric, result.higher_is_better)
    costs = list(dict.fromkeys(cost for row in result.rows for cost in row.time_to_target))
    columns = ["seconds"] if result.real else [f"C = {cost:g}" for cost in costs]
    lines = [["method", "seeds", f"final {metric.title}", *columns]]
    for row in result.rows:
        times = [
            number(row.time_to_target[cost], row.time_spread[cost], "not reached")
            if cost in row.time_to_target
            else "n/a"  # its policy looks at C: it would have been another run
            for cost in costs
        ]
        final = value(metric, row.final, row.final_spread)
        lines.append([row.method, str(len(row.seeds)), final, *times])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    noun = "time" if result.real else "simulated time"
    told = [f"{noun} to {metric.told(result.target)}"]
    for name, *cells in lines:
        rest = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        told.append("  ".join([name.ljust(widths[0]), *rest]))
    note = f"note: {result.caution}" if result.caution else ""
    return "\n".join([*told, *filter(None, [note, verdict(result)])])


def value(metric: Metric, mean: float, spread: float) -> str:
    words = metric.shown(mean)
    if not spread:
        return words
    return f"{words.removesuffix(' %')} ± {metric.shown(spread)}"


def number(mean: float | None, spread: float | None, missing: str, unit: str = "") -> str:
    if mean is None:
        return missing
    digits = 1 if mean < 1000 else 0
    shown = f"{mean:.{digits}f} ± {spread:.{digits}f}" if spread else f"{mean:.{digits}f}"
    return shown + unit

"""A comparison in one sentence: how much sooner, at which C, and where it turns."""

from __future__ import annotations

from srpfl.runs.comparison import Comparison
from srpfl.runs.metric import Metric

SAME = 1.05  # closer than this, nobody is ahead
EQUAL = "as soon"


def verdict(result: Comparison) -> str:
    """What the reference pair comes to; empty where there is no pair.

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

"""Who reaches a target first: times as lines in C, break-even, speed-up against target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from srpfl.runs.results import Results

TARGETS = 60  # along a curve of speed-ups


@dataclass(frozen=True)
class Finish:
    """The first evaluation at the target or better; its time is a line in C."""

    computing: float
    rounds: float

    def time(self, communication: float) -> float:
        return self.computing + communication * self.rounds


def finish(run: Results, target: float) -> Finish | None:
    """Where a run reaches the target; None where it never does."""
    for record in run.evaluations:
        if record.kind == run.headline and run.reaches(record.value, target):
            return Finish(record.computing, record.round)
    return None


def finishes(runs: Sequence[Results], target: float) -> list[Finish] | None:
    """Of every seed; None where not all of them got there."""
    found = [finish(run, target) for run in runs]
    there = [each for each in found if each is not None]
    return there if there and len(there) == len(found) else None


def played_at(runs: Sequence[Results], communication: float) -> bool:
    """Whether the runs say anything about this C: a policy that looks at it decides by it."""
    return all(
        not run.config.get("sees_communication") or run.communication == communication
        for run in runs
    )


def break_even(slow: Sequence[Finish], fast: Sequence[Finish]) -> float | None:
    """The C up to which the second is faster: it saves time and pays with rounds.

    >>> break_even([Finish(100, 10)], [Finish(20, 30)])
    4.0
    """
    saved = fmean(each.computing for each in slow) - fmean(each.computing for each in fast)
    more = fmean(each.rounds for each in fast) - fmean(each.rounds for each in slow)
    return saved / more if saved > 0 and more > 0 else None


@dataclass(frozen=True)
class Gain:
    """How many times sooner: the ratio of mean times over seeds, and beside it the standard
    deviation of the ratios seed by seed (0 where there is one seed, or seeds are not the same)."""

    speedup: float
    spread: float


def gain(
    slow: Sequence[Results], fast: Sequence[Results], target: float, communication: float
) -> Gain | None:
    """The speed-up of the second over the first; None where one of them does not get there, or
    would have decided otherwise at this C."""
    if not (played_at(slow, communication) and played_at(fast, communication)):
        return None
    theirs, mine = finishes(slow, target), finishes(fast, target)
    if theirs is None or mine is None:
        return None
    before = [each.time(communication) for each in theirs]
    after = [each.time(communication) for each in mine]
    if not all(after):
        return None
    paired = [run.config.get("seed") for run in slow] == [run.config.get("seed") for run in fast]
    ratios = [one / other for one, other in zip(before, after, strict=True)] if paired else []
    return Gain(fmean(before) / fmean(after), pstdev(ratios) if len(ratios) > 1 else 0.0)


def gains(
    slow: Sequence[Results],
    fast: Sequence[Results],
    communication: float,
    also: float | None = None,
) -> list[tuple[float, Gain]]:
    """The speed-up at targets from the first evaluation to the best that both reached; ``also`` is
    one that the curve must not miss, such as that of the table beside it."""
    runs = [*slow, *fast]
    if not all(run.scores for run in runs):
        return []
    metric = runs[0].judged_by
    start = metric.worst(run.scores[0].value for run in runs)
    end = metric.worst(metric.best(point.value for point in run.scores) for run in runs)
    # The end itself, and not a rounding error beyond it.
    steps = TARGETS if start != end else 0
    targets = [*(start + (end - start) * step / TARGETS for step in range(steps)), end]
    if also is not None and min(start, end) < also < max(start, end):
        targets = sorted([*targets, also], reverse=end < start)
    found = []
    for target in targets:
        gained = gain(slow, fast, target, communication)
        if gained is not None:
            found.append((target, gained))
    return found

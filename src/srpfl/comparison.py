"""Methods side by side: time to a common target, for every cost of communication."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from srpfl.errors import ConfigError
from srpfl.methods import METHODS
from srpfl.run import Run

COMMON = 0.95  # of the best accuracy that all runs reached


@dataclass(frozen=True)
class Row:
    """One method, over all its seeds."""

    method: str
    seeds: list[int]
    accuracy: float  # final, mean over seeds
    time_to_target: dict[float, float | None]  # by C; None: not every seed reached it
    speedup: dict[float, float | None]  # over the twin, by C


@dataclass(frozen=True)
class Comparison:
    target: float
    rows: list[Row]


def compare(
    runs: Sequence[Run],
    *,
    communication: Sequence[float] = (0, 10, 100),
    target: float | None = None,
) -> Comparison:
    """Compare runs. The target is 95 % of the best accuracy that every run reached, unless given:
    at the very top of a curve it is chance which evaluation comes first.

    Speed-ups are over the non-adaptive twin (fedrep for srpfl), or over the first method where a
    method has none here.
    """
    if not runs or not all(run.accuracy for run in runs):
        raise ConfigError("there is nothing to compare: every run needs at least one evaluation")
    if target is None:
        target = common_target(runs)
    methods = list(dict.fromkeys(run.name for run in runs))
    times = {
        name: {cost: _mean_time(_named(runs, name), target, cost) for cost in communication}
        for name in methods
    }
    rows = []
    for name in methods:
        known = METHODS.get(name)
        twin = known.twin if known is not None and known.twin in times else methods[0]
        speedup = {
            cost: _ratio(times[twin][cost], times[name][cost]) if twin != name else None
            for cost in communication
        }
        mine = _named(runs, name)
        seeds = [int(run.config["seed"]) for run in mine]
        final = fmean(run.accuracy[-1].mean for run in mine)
        rows.append(Row(name, seeds, final, times[name], speedup))
    return Comparison(target, rows)


def common_target(runs: Sequence[Run]) -> float:
    """95 % of the best accuracy that every run reached, rounded down to what is printed of it."""
    return math.floor(COMMON * min(_best(run) for run in runs) * 1000) / 1000


def _named(runs: Sequence[Run], name: str) -> list[Run]:
    return [run for run in runs if run.name == name]


def _best(run: Run) -> float:
    return max(point.mean for point in run.accuracy)


def _mean_time(runs: Sequence[Run], target: float, cost: float) -> float | None:
    times = [run.time_to(target, communication=cost) for run in runs]
    reached = [time for time in times if time is not None]
    return fmean(reached) if len(reached) == len(times) else None


def _ratio(slow: float | None, fast: float | None) -> float | None:
    return slow / fast if slow is not None and fast else None

"""Methods side by side: time to a common target, for every cost of communication."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from srpfl.errors import ConfigError
from srpfl.methods import METHODS
from srpfl.run import Run

COMMON = 0.95  # of the best accuracy that all runs reached


@dataclass(frozen=True)
class Row:
    """One method, over all its seeds. Runs of one method with other options are another row."""

    method: str
    seeds: list[int]
    accuracy: float  # final, mean over seeds
    # By C; None: not every seed reached it. Without a C that would have been another run.
    time_to_target: dict[float, float | None]
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
    else:
        check_target(target)
    groups: dict[str, list[Run]] = {}
    for run, group in zip(runs, groups_of(runs), strict=True):
        groups.setdefault(group, []).append(run)
    times = {
        group: {c: _mean_time(mine, target, c) for c in communication if _played_at(mine, c)}
        for group, mine in groups.items()
    }
    rows = []
    for group, mine in groups.items():
        twin = _twin(group, groups)
        speedup = {
            cost: _ratio(times[twin].get(cost), time) if twin != group else None
            for cost, time in times[group].items()
        }
        seeds = [int(run.config["seed"]) for run in mine]
        final = fmean(run.accuracy[-1].mean for run in mine)
        rows.append(Row(group, seeds, final, times[group], speedup))
    return Comparison(target, rows)


def check_target(target: float) -> None:
    if not 0 < target <= 1:
        raise ConfigError(f"the target is a fraction above 0 and at most 1, not {target}")


def common_target(runs: Sequence[Run]) -> float:
    """95 % of the best accuracy that every run reached, rounded down to what is printed of it."""
    return math.floor(COMMON * min(_best(run) for run in runs) * 1000) / 1000


def groups_of(runs: Sequence[Run]) -> list[str]:
    """The name of each run, with what sets it apart from others of that name: runs that differ in
    nothing but the seed have one name."""
    leaves = [_leaves(run.config) for run in runs]
    groups = []
    for run, mine in zip(runs, leaves, strict=True):
        named = [
            values for other, values in zip(runs, leaves, strict=True) if other.name == run.name
        ]
        names = dict.fromkeys(name for values in named for name in values)
        differing = [name for name in names if len({values.get(name) for values in named}) > 1]
        kinds = [name for name in differing if name.endswith("kind")]
        # Another kind of policy brings other fields with it; its name says enough.
        told = [f"{name.split('.')[-1]} {mine[name]}" for name in differing if name in mine]
        if kinds:
            told = [mine[name] for name in kinds if name in mine]
            same = [v for v in named if all(v.get(name) == mine.get(name) for name in kinds)]
            told += [
                f"{name.split('.')[-1]} {mine[name]}"
                for name in differing
                if name in mine and len({v.get(name) for v in same}) > 1
            ]
        groups.append(f"{run.name} ({', '.join(told)})" if told else run.name)
    return groups


CHOICES = (
    *("algorithm", "participation", "clock", "communication", "rounds"),
    *("data", "model", "pretrained", "precision"),
)
DEALT = ("partition", "shards", "alpha", "sigma", "augment")  # how data is dealt out


def _leaves(config: Mapping[str, Any]) -> dict[str, str]:
    """The choices that make a run another experiment, by dotted name."""
    found: dict[str, str] = {}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                walk(f"{name}.{key}", inner)
        else:
            found[name] = value if isinstance(value, str) else json.dumps(value)

    for choice in CHOICES:
        if choice == "model" and choice in config:  # its text is too long for a label
            found[choice] = f"{zlib.crc32(str(config[choice]).encode()):08x}"
        elif choice in config:
            walk(choice, config[choice])
    options = config.get("options")
    if isinstance(options, Mapping):
        for name in DEALT:
            walk(name, options.get(name))
    return found


def _twin(group: str, groups: Mapping[str, Sequence[Run]]) -> str:
    """The group that a group's speed-up is over."""
    own = groups[group][0]
    known = METHODS.get(own.name)
    twins = [name for name, runs in groups.items() if known and runs[0].name == known.twin]
    mine = _leaves(own.config)

    def alike(name: str) -> int:
        theirs = _leaves(groups[name][0].config)
        return sum(theirs.get(leaf) == value for leaf, value in mine.items())

    return max(twins, key=alike) if twins else next(iter(groups))


def _played_at(runs: Sequence[Run], cost: float) -> bool:
    """Whether the runs say anything about this C: a policy that looks at it decides by it."""
    return all(
        not run.config.get("sees_communication") or run.communication == cost for run in runs
    )


def _best(run: Run) -> float:
    return max(point.mean for point in run.accuracy)


def _mean_time(runs: Sequence[Run], target: float, cost: float) -> float | None:
    times = [run.time_to(target, communication=cost) for run in runs]
    reached = [time for time in times if time is not None]
    return fmean(reached) if len(reached) == len(times) else None


def _ratio(slow: float | None, fast: float | None) -> float | None:
    return slow / fast if slow is not None and fast else None

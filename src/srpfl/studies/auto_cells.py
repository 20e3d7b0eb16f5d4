"""Auto against the best of a family in hindsight, cell by cell: played, kept in a file, summed up.

A cell is a setting, a cost of communication and a target. Its times are means over the seeds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from srpfl.errors import ConfigError
from srpfl.linear import distance, method_of_moments
from srpfl.studies.auto_family import family, theory
from srpfl.studies.auto_play import Entry, floor_of, side_by_side
from srpfl.studies.auto_settings import Setting, setting_of
from srpfl.studies.auto_told import told

TARGETS = (1.2, 2.0, 4.0)  # times FedRep's floor
LONGER = 6.0  # Auto is given up at so many times the family's best time to the nearest target
MORE_ROUNDS = 4  # that Auto may play, whose rounds may be short
CLOSE, FAR = 1.15, 1.5
BLIND = 0.95  # a start at such a distance, of at most 1, has found next to nothing of the optimum

Times = dict[str, list[float | None]]  # by C: when each target was reached


@dataclass(frozen=True)
class Row:
    """One setting and seed: what each member of the family took, and Auto."""

    setting: Setting
    seed: int
    floor: float
    times: dict[str, Times]  # by member; "auto", or "auto-" with what it was told
    waits: dict[str, list[list[int]]]  # of Auto, by C: n for so many rounds
    replay: int = 0  # with the batches, and changing speeds, of other rounds

    @property
    def key(self) -> tuple[Setting, int, int]:
        return self.setting, self.seed, self.replay

    def json(self) -> str:
        return json.dumps({**vars(self), "setting": asdict(self.setting)}, separators=(",", ":"))

    @classmethod
    def of(cls, line: str) -> Row:
        found = json.loads(line)
        return cls(**{**found, "setting": setting_of(found["setting"])})


@dataclass(frozen=True)
class Cell:
    setting: Setting
    communication: float
    target: float
    times: dict[str, float]  # by member

    def ratio(self, auto: str = "auto") -> float:
        """Auto's time over that of the best in hindsight."""
        return self.times[auto] / self.times[self.best]

    @property
    def best(self) -> str:
        members = [name for name in self.times if not name.startswith("auto")]
        return min(members, key=lambda name: self.times[name])


def compare(
    setting: Setting, seed: int, known: Sequence[Sequence[str]] = ((),), replay: int = 0
) -> Row:
    """Play the family and Auto on one problem; ``known`` lists what Auto is told, run by run."""
    problem = setting.problem(seed)
    initial = method_of_moments(problem)
    members = family(setting, seed)
    entries = {"fedrep": Entry(members.pop("fedrep"))}
    courses = side_by_side(setting, problem, initial, entries, rounds=setting.rounds, replay=replay)
    floor = floor_of(courses["fedrep"])
    nearest = min(TARGETS) * floor
    entries = {name: Entry(policy) for name, policy in members.items()}
    for cost in setting.communications:
        policy = theory(setting, problem, initial, cost)
        entries[f"theory {cost:g}"] = Entry(policy)
    courses |= side_by_side(
        setting, problem, initial, entries, rounds=setting.rounds, until=nearest, replay=replay
    )

    def times(name: str, cost: float) -> list[float]:
        course = courses.get(name) or courses[f"{name} {cost:g}"]
        return [course.time_to(target * floor, cost) for target in TARGETS]

    names = ["fedrep", *members, "theory"]
    best = {c: min(times(name, c)[0] for name in names) for c in setting.communications}
    entries = {
        f"{_label(truths)} {cost:g}": Entry(
            told(setting, problem, truths), cost, LONGER * best[cost]
        )
        for truths in known
        for cost in setting.communications
    }
    courses |= side_by_side(
        setting,
        problem,
        initial,
        entries,
        rounds=MORE_ROUNDS * setting.rounds,
        until=nearest,
        replay=replay,
    )
    names += [_label(truths) for truths in known]
    return Row(
        setting=setting,
        seed=seed,
        floor=floor,
        times={
            name: {f"{c:g}": [_short(t) for t in times(name, c)] for c in setting.communications}
            for name in names
        },
        waits={
            f"{c:g}": courses[f"{_label(known[0])} {c:g}"].waits for c in setting.communications
        },
        replay=replay,
    )


def study(
    file: Path,
    settings: Sequence[Setting],
    seeds: Iterable[int],
    known: Sequence[Sequence[str]] = ((),),
    say: Callable[[str], None] = lambda text: None,
    replays: int = 1,
) -> list[Row]:
    """Play what the file does not hold yet, add it there, and return all that was asked for."""
    labels = {_label(truths) for truths in known}
    held = {row.key: row for row in read(file) if labels <= set(row.times)}
    wanted = [
        (setting, seed, replay)
        for seed in seeds
        for replay in range(replays)
        for setting in settings
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    for setting, seed, replay in wanted:
        if (setting, seed, replay) not in held:
            row = held[setting, seed, replay] = compare(setting, seed, known, replay)
            with file.open("a") as out:
                out.write(row.json() + "\n")
            say(f"seed {seed}{f', replay {replay}' if replay else ''}: {setting.name}")
    return [held[key] for key in wanted]


def read(file: Path) -> list[Row]:
    """The rows of a file, none if there is no file. A last line that is not whole is cut off."""
    if not file.exists():
        return []
    whole, _, torn = file.read_text().rpartition("\n")
    if torn:
        file.write_text(whole + "\n" if whole else "")
    try:
        return [Row.of(line) for line in whole.split("\n") if line]
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{file} holds other lines than this study's: move it away") from error


def cells(rows: Sequence[Row]) -> list[Cell]:
    """Means over the seeds; targets that were met before the first round are left out."""
    groups: dict[Setting, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.setting, []).append(row)
    table = []
    for setting, same in groups.items():
        names = [name for name in same[0].times if all(name in row.times for row in same)]
        for cost in setting.communications:
            for place, target in enumerate(TARGETS):
                times = {
                    name: fmean(_long(row.times[name][f"{cost:g}"][place]) for row in same)
                    for name in names
                }
                if min(times.values()) > 0:
                    table.append(Cell(setting, cost, target, times))
    return table


def verdict(table: Sequence[Cell]) -> dict[str, Any]:
    """The bar, for Auto and for each member of the family in its place."""
    return {
        "cells": len(table),
        "best in hindsight": _counts(cell.best for cell in table),
        **{name: judged([cell.ratio(name) for cell in table]) for name in table[0].times},
    }


def weakest(table: Sequence[Cell], count: int = 10) -> list[str]:
    """The cells in which Auto is furthest behind, in words."""
    worst = sorted(table, key=lambda cell: -cell.ratio())[:count]
    return [
        f"{cell.ratio():.2f} of {cell.best}: {cell.setting.name}, C = {cell.communication:g}, "
        f"{cell.target:g} x the floor"
        for cell in worst
    ]


def beside(table: Sequence[Cell]) -> list[str]:
    """Auto's time over that of each member and of the best: the median, lowest and highest cell.
    Cells that neither reached are left out."""
    members = [name for name in table[0].times if not name.startswith("auto")]
    lines = []
    for name in ["the best in hindsight", *members]:
        pairs = [
            (cell.times["auto"], cell.times.get(name, cell.times[cell.best])) for cell in table
        ]
        ratios = sorted(ours / other for ours, other in pairs if min(ours, other) < math.inf)
        told = [ratios[0], median(ratios), ratios[-1]] if ratios else [math.inf] * 3
        low, middle, high = (f"{each:.2f}" if each < math.inf else "not reached" for each in told)
        lines.append(f"{name}: {middle} ({low} to {high})")
    return lines


def shares(rows: Sequence[Row], table: Sequence[Cell]) -> list[str]:
    """How often Auto is close: by C, by clock, and by whether the start has found anything."""
    away: dict[Setting, list[float]] = {}
    for setting, seed in {(row.setting, row.seed) for row in rows}:
        problem = setting.problem(seed)
        start = distance(problem.representation, method_of_moments(problem))
        away.setdefault(setting, []).append(start)
    blind = {setting: fmean(starts) > BLIND for setting, starts in away.items()}
    groups: dict[str, list[bool]] = {}
    for cell in table:
        cost = cell.communication
        for name in (
            "C = 0" if not cost else "C up to 1" if cost <= 1 else "C above 1",
            f"clock {cell.setting.clock}",
            f"start {'beyond' if blind[cell.setting] else 'within'} {BLIND}",
        ):
            groups.setdefault(name, []).append(cell.ratio() <= CLOSE)
    return [f"{name}: {100 * fmean(c):.0f} % of {len(c)}" for name, c in sorted(groups.items())]


def judged(ratios: Sequence[float]) -> dict[str, float | None]:
    """How often close and how often far, and the quantiles."""
    ordered = sorted(ratios)
    return {
        "within 1.15": round(fmean(ratio <= CLOSE for ratio in ratios), 3),
        "above 1.5": round(fmean(ratio > FAR for ratio in ratios), 3),
        "median": _short(round(median(ratios), 3)),
        "9 of 10": _short(ordered[math.ceil(0.9 * len(ordered)) - 1]),
        "worst": _short(ordered[-1]),  # None: not reached
    }


def _counts(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def _label(truths: Sequence[str]) -> str:
    return "-".join(["auto", *truths])


def _short(time: float) -> float | None:
    return float(f"{time:.5g}") if math.isfinite(time) else None


def _long(time: float | None) -> float:
    return math.inf if time is None else time

"""From a panel's runs to its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, pstdev
from typing import Any

from srpfl.options.methods import METHODS
from srpfl.runs.records import EvaluationRecord, half_accuracies, mean_times
from srpfl.runs.run import Run

COSTS = (0.0, 10.0, 100.0)
TARGET_ROUND = 40 / 150  # the twin's accuracy after this part of its rounds is the target


@dataclass(frozen=True)
class Curve:
    """One of the nine curves: a training judged by one kind of accuracy."""

    name: str
    kind: str
    runs: tuple[Run, ...]

    @property
    def seeds(self) -> list[int]:
        return [int(run.config["seed"]) for run in self.runs]

    def final(self) -> list[float]:
        return [self.evaluations(run)[-1].value for run in self.runs]

    def evaluations(self, run: Run) -> list[EvaluationRecord]:
        return [record for record in run.evaluations if record.kind == self.kind]


@dataclass(frozen=True)
class Row:
    """A line of the table; times are means over seeds, null where some seed did not get there."""

    method: str
    seeds: list[int]
    final: float
    spread: float  # standard deviation of the final accuracy over seeds
    target: float  # mean over seeds of the twin's accuracy at 40/150 of its rounds
    time: dict[str, float | None]  # to that target, by C
    speedup: dict[str, float | None]  # over the twin
    common_time: dict[str, float | None]  # to fedrep's accuracy at the same round
    slow_half: float  # final accuracy of the slowest half of the clients
    fast_half: float


def curves(runs: Sequence[Run]) -> list[Curve]:
    """The curves that these runs hold, in the order of the methods' list."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        for kind in dict.fromkeys(record.kind for record in run.evaluations):
            headline = METHODS[run.name].algorithm.headline
            name = run.name if kind == headline else f"{run.name}-ft"
            if name in METHODS:
                found.setdefault((name, kind), []).append(run)
    order = list(METHODS)
    keys = sorted(found, key=lambda key: order.index(key[0]))
    return [Curve(name, kind, tuple(found[name, kind])) for name, kind in keys]


def table(runs: Sequence[Run]) -> list[Row]:
    """One row per curve."""
    known = {curve.name: curve for curve in curves(runs)}
    return [_row(curve, known) for curve in known.values()]


def _row(curve: Curve, known: Mapping[str, Curve]) -> Row:
    twin = known.get(METHODS[curve.name].twin or curve.name, curve)
    common = known.get("fedrep", twin)
    own = {cost: _times(curve, twin, cost) for cost in COSTS}
    theirs = {cost: _times(twin, twin, cost) for cost in COSTS}
    halves = [_halves(curve, run) for run in curve.runs]
    return Row(
        method=curve.name,
        seeds=curve.seeds,
        final=fmean(curve.final()),
        spread=pstdev(curve.final()),
        target=fmean(_target(twin, run) for run in twin.runs),
        time={f"{cost:g}": _mean(list(own[cost].values())) for cost in COSTS},
        speedup={f"{cost:g}": _speedup(own[cost], theirs[cost]) for cost in COSTS}
        if twin is not curve
        else {},
        common_time={
            f"{cost:g}": _mean(list(_times(curve, common, cost).values())) for cost in COSTS
        },
        slow_half=fmean(slow for slow, _ in halves),
        fast_half=fmean(fast for _, fast in halves),
    )


def _target(curve: Curve, run: Run) -> float:
    """The accuracy of a run at the target round: at its first evaluation there or later."""
    last = len(run.rounds)
    return next(r.value for r in curve.evaluations(run) if r.round >= TARGET_ROUND * last)


def _times(curve: Curve, reference: Curve, cost: float) -> dict[int, float | None]:
    """By seed, the time to the accuracy of the reference's run of the same seed."""
    targets = {int(run.config["seed"]): _target(reference, run) for run in reference.runs}
    times = {}
    for seed, run in zip(curve.seeds, curve.runs, strict=True):
        if seed in targets:
            times[seed] = run.time_to(targets[seed], communication=cost, kind=curve.kind)
    return times


def _speedup(own: Mapping[int, float | None], twin: Mapping[int, float | None]) -> float | None:
    """The ratio of mean times over the seeds that both have."""
    both = [seed for seed in own if seed in twin]
    mine, theirs = _mean([own[seed] for seed in both]), _mean([twin[seed] for seed in both])
    return theirs / mine if mine and theirs else None


def _mean(times: Sequence[float | None]) -> float | None:
    reached = [time for time in times if time is not None]
    return fmean(reached) if times and len(reached) == len(times) else None


def _halves(curve: Curve, run: Run) -> tuple[float, float]:
    times = mean_times(run.rounds)
    slowest_first = sorted(times, key=lambda client: -times[client])
    return half_accuracies(curve.evaluations(run)[-1], slowest_first)


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]

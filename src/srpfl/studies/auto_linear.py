"""Auto against FedRep and the fixed schedule in the linear case, where the truth is known."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from srpfl.clock import Clock, DynamicExponential, Equal, FixedExponential, Pareto, TwoGroups, Work
from srpfl.linear import LinearRun, Problem, distance, method_of_moments
from srpfl.linear.problem import Array, Clients
from srpfl.linear.run import LinearClients, LinearFedRep
from srpfl.loop.rounds import initial_state, play
from srpfl.participation import Auto, Doubling, Everyone, Participation

COMMUNICATIONS = (0.0, 0.1, 1.0, 10.0, 100.0)
TARGETS = (1.2, 2.0, 4.0)  # times FedRep's floor
STARTS = {32: 2, 128: 4, 1024: 8}  # n0 by N
STAGE = 20  # rounds per stage of the fixed schedule
ROUNDS, ETA = 400, 0.1
CLOCKS: dict[str, Callable[..., Clock]] = {
    "fixed": FixedExponential,
    "dynamic": DynamicExponential,
    "pareto": Pareto,
    "two-groups": TwoGroups,
    "equal": Equal,
}


@dataclass(frozen=True)
class Row:
    """One run: when it reached each target, and where it ended."""

    clock: str
    clients: int
    seed: int
    method: str  # fedrep, schedule or auto
    communication: float | None  # None: the run does not depend on it
    floor: float
    reached: dict[str, tuple[int, float] | None]  # target: (round, time without communication)
    waits: list[tuple[int, int]]  # n, for so many rounds

    def time_to(self, target: float, communication: float) -> float:
        """The time to a target; infinite if it was not reached."""
        found = self.reached[f"{target:g}"]
        return found[1] + communication * found[0] if found else float("inf")


@dataclass(frozen=True)
class Cell:
    """The mean over seeds in one setting."""

    clock: str
    clients: int
    communication: float
    target: float
    fedrep: float
    schedule: float
    auto: float
    floor: float  # Auto's over FedRep's

    @property
    def ratio(self) -> float:
        """Auto's time over that of the better of the two others."""
        return self.auto / min(self.fedrep, self.schedule)


@dataclass(frozen=True, kw_only=True)
class SharedBatches(Problem):
    """A problem that draws a round's batches once, for runs that are played round by round."""

    _drawn: dict[tuple[str, int], tuple[Array, Array]] = field(default_factory=dict, repr=False)

    def batch(self, purpose: str, round: int, clients: Clients) -> tuple[Array, Array]:
        if (purpose, round) not in self._drawn:
            self._drawn.clear()
            everyone = np.arange(self.clients)
            self._drawn[purpose, round] = super().batch(purpose, round, everyone)
        x, y = self._drawn[purpose, round]
        return x[clients], y[clients]


def study(
    file: Path,
    *,
    clocks: Sequence[str],
    clients: Sequence[int],
    seeds: Iterable[int],
    communications: Sequence[float] = COMMUNICATIONS,
) -> list[Row]:
    """Run what the file does not hold yet, add it there, and return all that was asked for."""
    asked = list(itertools.product(clients, seeds))
    needed = {("fedrep", None), ("schedule", None), *(("auto", cost) for cost in communications)}
    held: dict[tuple[str, int, int], list[Row]] = {}
    for row in (found := read(file)):
        held.setdefault((row.clock, row.clients, row.seed), []).append(row)
    for number, seed in asked:
        for clock in clocks:
            block = held.get((clock, number, seed), [])
            if not needed <= {(row.method, row.communication) for row in block}:
                held.pop((clock, number, seed), None)  # left behind by a study that was stopped
    write(file, [r for r in found if (r.clock, r.clients, r.seed) in held], whole=True)
    for number, seed in asked:
        missing = [clock for clock in clocks if (clock, number, seed) not in held]
        if missing:
            new = compare(number, seed, missing, communications)
            write(file, new)
            for row in new:
                held.setdefault((row.clock, row.clients, row.seed), []).append(row)
    wanted = [(clock, number, seed) for number, seed in asked for clock in clocks]
    return [row for key in wanted for row in held[key]]


def compare(
    clients: int, seed: int, clocks: Sequence[str], communications: Sequence[float]
) -> list[Row]:
    """FedRep, the schedule and Auto on the same data, played side by side, round by round."""
    problem = SharedBatches(clients=clients, dim=20, rank=2, samples=20, noise=1.0, seed=seed)
    start = STARTS[clients]
    setups: dict[tuple[str, str, float | None], tuple[Participation, Clock]] = {
        (clock, "schedule", None): (Doubling(start=start, every=STAGE), CLOCKS[clock]())
        for clock in clocks
    }
    for clock, cost in itertools.product(clocks, communications):
        setups[clock, "auto", cost] = Auto(start=start), CLOCKS[clock](communication=cost)
    setups["any", "fedrep", None] = Everyone(), Equal()
    initial = method_of_moments(problem)
    runs = dict(zip(setups, _side_by_side(problem, initial, list(setups.values())), strict=True))
    fedrep = runs.pop(("any", "fedrep", None))
    # Who is waited for does not depend on the clock when it is everyone: only the times do.
    for clock in clocks:
        runs[clock, "fedrep", None] = replace(
            fedrep, computing=_time_of_all(problem, CLOCKS[clock]())
        )
    return [
        Row(
            clock,
            clients,
            seed,
            method,
            cost,
            run.floor,
            {f"{target:g}": _reached(run, target * fedrep.floor) for target in TARGETS},
            [(n, len(list(same))) for n, same in itertools.groupby(run.participants)],
        )
        for (clock, method, cost), run in runs.items()
    ]


def _side_by_side(
    problem: Problem, initial: Array, setups: Sequence[tuple[Participation, Clock]]
) -> Iterator[LinearRun]:
    server = LinearFedRep(eta=ETA)
    transports = [LinearClients(problem, clock, ETA) for _, clock in setups]
    states = [
        initial_state({"B": torch.from_numpy(initial)}, policy, problem.clients)
        for policy, _ in setups
    ]
    seen: list[list[tuple[float, float, int]]] = [[] for _ in setups]
    for _ in range(ROUNDS):
        for i, (policy, _) in enumerate(setups):
            states[i], record = play(
                states[i],
                algorithm=server,
                participation=policy,
                transport=transports[i],
                seed=problem.seed,
            )
            away = distance(problem.representation, states[i].shared["B"].numpy())
            seen[i].append((away, record.computing, len(record.participants)))
    for rounds in seen:
        distances, computing, participants = zip(*rounds, strict=True)
        yield LinearRun(
            initial_distance=distance(problem.representation, initial),
            distance=np.array(distances),
            computing=np.array(computing),
            participants=participants,
            sigma_min=float("nan"),  # nobody reads them here
            sigma_max=float("nan"),
        )


def _time_of_all(problem: Problem, clock: Clock) -> Array:
    everyone = np.arange(problem.clients)
    work = Work(np.ones_like(everyone), np.full_like(everyone, problem.samples), 0, 0)
    times = [
        clock.times(problem.seed, round, everyone, problem.clients, work).max()
        for round in range(ROUNDS)
    ]
    return np.cumsum(times)


def _reached(run: LinearRun, target: float) -> tuple[int, float] | None:
    if run.initial_distance <= target:
        return 0, 0.0
    rounds = np.flatnonzero(run.distance <= target)
    return (int(rounds[0]) + 1, float(run.computing[rounds[0]])) if len(rounds) else None


def cells(rows: Sequence[Row]) -> list[Cell]:
    """Means over the seeds, setting by setting."""
    groups: dict[tuple[str, int], dict[tuple[str, float | None], list[Row]]] = {}
    for row in rows:
        group = groups.setdefault((row.clock, row.clients), {})
        group.setdefault((row.method, row.communication), []).append(row)
    table = []
    for (clock, clients), group in sorted(groups.items()):
        floor = fmean(row.floor for row in group["fedrep", None])
        costs = sorted(cost for _, cost in group if cost is not None)
        for cost, target in itertools.product(costs, TARGETS):
            times = {
                method: fmean(row.time_to(target, cost) for row in group[method, given])
                for method, given in (("fedrep", None), ("schedule", None), ("auto", cost))
            }
            own = fmean(row.floor for row in group["auto", cost])
            table.append(Cell(clock, clients, cost, target, **times, floor=own / floor))
    return table


def verdict(table: Sequence[Cell]) -> dict[str, Any]:
    """What must be shown, in numbers."""
    costly = [cell for cell in table if cell.communication >= 1]
    return {
        "cells": len(table),
        "at most 1.15 times the better": fmean(cell.ratio <= 1.15 for cell in table),
        "worst ratio": max(cell.ratio for cell in table),
        "cells with C at least 1": len(costly),
        "strictly better than both there": fmean(cell.ratio < 1 for cell in costly)
        if costly
        else None,
        "worst floor over FedRep's": max(cell.floor for cell in table),
        "mean floor over FedRep's": fmean(cell.floor for cell in table),
    }


def read(file: Path) -> list[Row]:
    """The rows of a file, none if there is no file. A last line that is not whole is left out."""
    if not file.exists():
        return []
    *lines, _torn = file.read_text().split("\n")
    return [Row(**json.loads(line)) for line in lines]


def write(file: Path, rows: Sequence[Row], *, whole: bool = False) -> None:
    """Add rows to a file, all or (if the machine stops) some of them; or let it hold just these."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(vars(row), separators=(",", ":")) + "\n" for row in rows)
    if whole:
        part = file.with_suffix(".part")
        part.write_text(text)
        part.replace(file)
    else:
        with file.open("a") as out:
            out.write(text)

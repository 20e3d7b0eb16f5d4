"""Every method with everyone, with doubling, with Auto: ``python -m srpfl.studies.methods PART``.

Runs that are already there are not played again, so the study can grow over many sittings, a few
methods at a time (``--only``). Parts: ``digits`` and ``femnist-small`` are for a CPU; ``cifar10``
and ``femnist`` are the large ones; ``niid-bench``, ``fedrep-2`` and ``fedrep-5`` hold the order of
some methods against published ones.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from srpfl.errors import SrpflError, unknown
from srpfl.options.config import Config
from srpfl.options.methods import METHODS
from srpfl.options.settings import Settings
from srpfl.reproduce.grid import finished, over
from srpfl.runs.files import write_text
from srpfl.runs.run import Run
from srpfl.studies.methods_page import draw, ranking, table
from srpfl.studies.speeds import slowest_first
from srpfl.sweeps.live import live_table
from srpfl.sweeps.plan import Planned
from srpfl.sweeps.playing import PLACES, play

# A method that is another with a policy of its own is that other here; FedBN needs a model with
# normalisation layers, and MOCHA linear ones (in a part of its own).
SPECIAL = ("fedbn", "mocha")
ALL = tuple(name for name, m in METHODS.items() if m.twin is None and name not in SPECIAL)
EVERYONE, DOUBLING, AUTO = "everyone", "doubling", "auto"
MACHINE = ("device", "engine", "precision", "data_dir")  # options of the command and of its runs
LAST = 5  # an end is the mean of the last so many evaluations up to its time


@dataclass(frozen=True)
class Part:
    """What is trained, by which methods, and at which round of the twin its accuracy is taken."""

    options: Mapping[str, Any]
    mark: int
    methods: tuple[str, ...] = ALL
    policies: tuple[str, ...] = (EVERYONE, DOUBLING, AUTO)
    communications: tuple[float, ...] = (0.0, 10.0, 100.0)
    special: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # options of a method
    # Times as many rounds, by the run's label: short ones have to fill the time of the twin.
    longer: Mapping[str, float] = field(default_factory=dict)


# HF-MAML's usual β diverges on normalised images; these take the other methods' rate.
_SLOWER = {name: {"maml_beta": 0.01} for name in ("hf-maml", "per-fedavg")}
_ORDER = ("fedrep", "fedper", "lg-fedavg", "ditto", "apfl", "l2gd", "per-fedavg", "fedavg-ft")
_DIGITS = {
    "data": "digits",
    "clients": 20,
    "rounds": 40,
    "start": 2,
    "every": 5,
    "evaluate_every": 2,
}
_LONGER = {"doubling": 2.0, "auto-C0": 4.0, "auto-C10": 1.5}
_LINEAR: dict[str, Any] = {"model": {"hidden": []}}
PARTS = {
    "digits": Part(_DIGITS, mark=20, longer=_LONGER),
    "digits-linear": Part(
        {**_DIGITS, "model": "mlp", "set": _LINEAR},
        mark=20,
        methods=("fedavg", "ditto", "mean-mtl", "mocha"),
        communications=(0.0, 10.0),
        longer=_LONGER,
        special={"mocha": {"set": {**_LINEAR, "algorithm": {"tasks": 20}}}},
    ),
    # For a CPU: fewer writers, at most 100 images of each, less work and a smaller network.
    "femnist-small": Part(
        {"data": "femnist", "partition": "natural", "clients": 50, "per_client": 100,
         "rounds": 60, "head_epochs": 2, "tuning_epochs": 3, "start": 5, "every": 5,
         "evaluate_every": 4, "set": {"model": {"hidden": [64]}}},
        mark=40,
        special=_SLOWER,
        longer=_LONGER,
    ),
    "cifar10": Part({"data": "cifar10", "rounds": 150}, mark=40, special=_SLOWER),
    "femnist": Part(
        {"data": "femnist", "partition": "natural", "clients": 100, "rounds": 150},
        mark=40,
        special=_SLOWER,
    ),
    # Flower's niid_bench: its network, ten clients, Dirichlet 0.5, ten epochs in batches of 64.
    "niid-bench": Part(
        {"data": "cifar10", "partition": "dirichlet", "alpha": 0.5, "clients": 10, "rounds": 50,
         "epochs": 10, "batch_size": 64, "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-5,
         "weighting": "samples", "checkpoint_every": 5, "model": "lenet5",
         "set": {"model": {"conv": [6, 16], "linear": [120, 84]}}},
        mark=40,
        methods=("fedavg", "scaffold", "fedprox", "fednova"),
        policies=(EVERYONE,),
        communications=(0.0,),
    ),
    **{
        f"fedrep-{shards}": Part(
            {"data": "cifar10", "shards": shards, "rounds": 100, "sample": 0.1,
             "momentum": 0.5, "evaluate_at": "20,40,60,80,92,94,96,98,100"},
            mark=40,
            methods=_ORDER,
            policies=(EVERYONE,),
            communications=(0.0,),
            special=_SLOWER,
        )
        for shards in (2, 5)
    },
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """A run of the study: a policy that does not look at C has one run for all C."""

    method: str
    seed: int
    policy: str
    cost: float | None
    run: Planned


def study(
    name: str,
    runs: Path,
    *,
    methods: Sequence[str],
    seeds: Sequence[int],
    options: Settings,
    **how: Any,
) -> list[dict[str, Any]]:
    """Play what the folder does not hold yet as a sweep; a row for each method, policy and C of
    the runs that are over."""
    part = PARTS[name]
    cells = [c for m in methods for seed in seeds for c in _cells(name, runs, m, seed, options)]
    missing = [cell.run for cell in cells if not over(cell.run.folder, cell.run.config)]
    for row in play(missing, runs / name, **how).rows:
        if row.state == "failed":
            raise SrpflError(str(row.error))
    rows, twins = [], dict[tuple[str, int], Run | None]()
    for cell in cells:
        if not over(cell.run.folder, cell.run.config):  # not before the deadline
            continue
        run = finished(cell.run.folder, cell.run.config)
        if cell.policy == EVERYONE:
            twins[cell.method, cell.seed] = run
        costs = part.communications if cell.cost is None else (cell.cost,)
        twin = twins.get((cell.method, cell.seed))
        rows += [_row(part, cell.method, cell.seed, cell.policy, c, run, twin) for c in costs]
    return rows


def _cells(name: str, runs: Path, method: str, seed: int, options: Settings) -> Iterator[Cell]:
    part = PARTS[name]
    usual: dict[str, Any] = {"evaluate_every": 1, "checkpoint_every": 10}
    usual |= {**part.options, **part.special.get(method, {}), **options}
    for policy in part.policies:
        for cost in part.communications if policy == AUTO else (None,):
            label = policy if cost is None else f"{policy}-C{cost:g}"
            own = {"method": method, "seed": seed, "participation": policy}
            own["rounds"] = round(usual["rounds"] * part.longer.get(label, 1))
            config = Config.of({**usual, **own, "communication": cost or 0.0}, source=name)
            folder = runs / name / method / f"{label}-seed{seed}"
            yield Cell(method, seed, policy, cost, Planned(folder, config, own))


def _row(
    part: Part, method: str, seed: int, policy: str, cost: float, run: Run | None, twin: Run | None
) -> dict[str, Any]:
    """Times, accuracies, and how the slower half of the clients stands beside the faster: when the
    twin ends, or as long as the run is if it ends before."""
    row: dict[str, Any] = {"method": method, "seed": seed, "policy": policy, "C": cost}
    if run is None:
        return {**row, "diverged": True}
    until = min(run.time(cost), (run if twin is None else twin).time(cost))
    curve = run.curve(communication=cost)
    last = [point for point in curve if point.time <= until + 1e-9][-LAST:] or curve[:1]
    order = slowest_first(run)
    slow, fast = order[: len(order) // 2], order[len(order) // 2 :]
    row["final"] = round(fmean(point.value for point in last), 4)
    row["slow - fast"] = round(
        fmean(_mean(point.clients, slow) - _mean(point.clients, fast) for point in last), 4
    )
    row["end"] = round(until, 2)
    if twin is not None:
        target = next(point.value for point in twin.scores if point.round >= part.mark)
        time = run.time_to(target, communication=cost)
        row |= {"target": round(target, 4), "time": None if time is None else round(time, 2)}
    return row


def _mean(clients: Sequence[float], some: Sequence[int]) -> float:
    return fmean(clients[client] for client in some)


def merged(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of earlier sittings, with the new ones in the place of those that they repeat."""
    by_key = {(r["method"], r["seed"], r["policy"], r["C"]): r for r in (*old, *new)}
    order = list(METHODS)
    return sorted(by_key.values(), key=lambda row: order.index(row["method"]))


def page(name: str, rows: Sequence[dict[str, Any]]) -> str:
    """The tables of a part: without other policies there is only an order to show."""
    return table(rows) if len(PARTS[name].policies) > 1 else ranking(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Play a part of the study, keep its rows, and write its table and its picture."""
    parser = argparse.ArgumentParser(
        prog="python -m srpfl.studies.methods",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--only", nargs="*", help="methods; all of the part by default")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("results/methods"))
    parser.add_argument("--runs", type=Path, default=Path("runs/methods"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--data-dir")
    parser.add_argument("--on", choices=list(PLACES), default="turn", help="where runs are played")
    parser.add_argument("--workers", type=int, help="runs at a time, unless in turn")
    parser.add_argument("--together", type=int, default=1, help="runs that share a worker")
    parser.add_argument("--minutes", type=float, help="begin no new run after this long")
    given = parser.parse_args(arguments)
    began, rows, failed = time.perf_counter(), list[dict[str, Any]](), list[str]()
    try:
        methods = given.only or PARTS[given.part].methods
        for method in methods:
            if method not in PARTS[given.part].methods:
                raise unknown("method", method, PARTS[given.part].methods)
        options = {name: getattr(given, name) for name in MACHINE}
        file = given.out / f"{given.part}.json"
        how = {"on": given.on, "workers": given.workers, "together": given.together}
        how["deadline"] = None if given.minutes is None else began + 60 * given.minutes
        for method in methods:  # what is done is kept, and one that fails does not stop the others
            try:
                with live_table() as watch:
                    found = study(given.part, given.runs, methods=[method], seeds=given.seeds,
                                  options=options, watch=watch, **how)  # fmt: skip
            except SrpflError as error:
                failed.append(f"{method}: {error}")
                continue
            rows = merged(json.loads(file.read_text()) if file.exists() else [], found)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
        if rows:
            write_text(file.with_suffix(".md"), page(given.part, rows))
            draw(rows, file.with_suffix(".png"))
    except SrpflError as error:
        failed.append(str(error))
    if failed:
        parser.exit(2, "".join(f"{parser.prog}: {error}\n" for error in failed))


if __name__ == "__main__":
    main()

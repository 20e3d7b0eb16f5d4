"""Auto against FedRep and SRPFL's schedule where networks are trained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from srpfl.errors import ConfigError
from srpfl.options.choices import build_participation
from srpfl.options.config import Config
from srpfl.options.methods import METHODS
from srpfl.options.play import play_or_resume
from srpfl.reproduce.grid import finished
from srpfl.runs.describe import describe
from srpfl.runs.run import Run
from srpfl.studies.speeds import slowest_first

COMMUNICATIONS = (0.0, 1.0, 10.0, 100.0)
# Where communication is free, Auto takes more and shorter rounds: it is given so many times the
# rounds of the others, and is judged by time like them.
MORE_ROUNDS = 2.5
PLACES = ("data_dir", "engine", "device")  # options that say where a run is played, not which


@dataclass(frozen=True)
class Setting:
    """What is trained, and at which of FedRep's rounds its accuracy becomes a target."""

    options: dict[str, Any]
    marks: tuple[int, ...]
    slow: bool = False  # compare the accuracy of the slowest fifth, who hold classes of their own
    communications: tuple[float, ...] = COMMUNICATIONS
    clock: dict[str, Any] = field(default_factory=dict)


_SHORT = {"head_epochs": 2, "body_epochs": 1, "tuning_epochs": 3, "rounds": 60}
SETTINGS = {
    "digits": Setting({"data": "digits", "rounds": 60}, marks=(8, 16, 32)),
    "digits-dynamic": Setting(
        {"data": "digits", "rounds": 60}, marks=(8, 16, 32), clock={"clock": "dynamic"}
    ),
    "digits-equal": Setting(
        {"data": "digits", "rounds": 60}, marks=(8, 16, 32), clock={"clock": "equal"}
    ),
    "digits-slow-classes": Setting(
        {"data": "digits", "rounds": 60, "partition": "slow-classes"}, marks=(8, 16, 32), slow=True
    ),
    # Persons and writers with data of their own (--set data_dir=DATA), small enough for a CPU.
    "har": Setting(
        {
            **_SHORT,
            "data": "har",
            "model": "mlp",
            "lr": 0.01,
            "set": ["data.inputs=features", "model.hidden=[32]"],
        },
        marks=(8, 16, 32),
    ),
    "femnist": Setting(
        {
            **_SHORT,
            "data": "femnist",
            "partition": "natural",
            "clients": 376,
            "per_client": 100,
            "set": ["model.hidden=[64]"],
        },
        marks=(8, 16, 32),
    ),
    # The paper's: 100 clients, 150 rounds, all else as the recipes have it.
    "cifar10": Setting({"data": "cifar10", "rounds": 150}, marks=(20, 40, 80)),
    "cifar10-dynamic": Setting(
        {"data": "cifar10", "rounds": 150}, marks=(20, 40, 80), clock={"clock": "dynamic"}
    ),
    "emnist": Setting({"data": "emnist", "rounds": 150}, marks=(6, 10, 20, 40, 80)),
}


def study(
    name: str, runs: Path, *, seeds: Sequence[int], overrides: dict[str, Any]
) -> dict[str, Any]:
    """Train what the folder does not hold yet, and summarise all of it.

    FedRep and the schedule do not look at C, so one run of each serves every C; Auto does, so it
    is run once for each.
    """
    setting = SETTINGS[name]
    common = {**setting.options, "evaluate_every": 1, **setting.clock, **overrides}

    rounds = Config.of(common, source=name).rounds or 0
    if rounds < min(setting.marks):
        raise ConfigError(f"targets are from round {min(setting.marks)} on, but rounds={rounds}")
    longer = round(MORE_ROUNDS * rounds)

    def played(label: str, seed: int, **special: Any) -> Run:
        config = Config.of({**common, "seed": seed, **special}, source=name)
        folder = runs / name / f"{label}-seed{seed}"
        run = finished(folder, config)
        # What is there is summarised anywhere, also without the device that it was trained on.
        return run if run and _is(run, config) else play_or_resume(config, folder)

    fedrep = [played("fedrep", seed, method="fedrep") for seed in seeds]
    schedule = [played("srpfl", seed, method="srpfl") for seed in seeds]
    auto = {
        cost: [
            played(f"auto-C{cost:g}", seed, method="srpfl", participation="auto",
                   communication=cost, **({} if cost else {"rounds": longer}))
            for seed in seeds
        ]
        for cost in setting.communications
    }  # fmt: skip
    return summary(setting, fedrep, schedule, auto)


def _is(run: Run, config: Config) -> bool:
    """Whether this is the run that the config asks for, wherever it was played."""
    asked, held = config.for_folder(), run.config["options"]
    policy = describe(build_participation(config, METHODS[config.method].participation))
    return run.config["participation"] == policy and all(
        asked.get(name) == value for name, value in held.items() if name not in PLACES
    )


def summary(
    setting: Setting,
    fedrep: Sequence[Run],
    schedule: Sequence[Run],
    auto: Mapping[float, Sequence[Run]],
) -> dict[str, Any]:
    """Times to FedRep's own accuracies, final accuracies, and the n that Auto chose.

    Every seed has data of its own, and so a target of its own: what FedRep came to on them.
    """
    targets = {
        mark: [_accuracy_at(run, mark) for run in fedrep]
        for mark in setting.marks
        if mark <= len(fedrep[0].rounds)
    }
    costs = {}
    for cost, runs in auto.items():
        times = {
            mark: {
                "fedrep": _mean_time(fedrep, own, cost),
                "srpfl": _mean_time(schedule, own, cost),
                "auto": _mean_time(runs, own, cost),
            }
            for mark, own in targets.items()
        }
        costs[f"{cost:g}"] = {
            "times": times,
            "final": fmean(_final(run) for run in runs),
            "slow": _slow(runs) if setting.slow else None,
            "deciles": deciles(runs),
            "in FedRep's time": _in_the_time_of(fedrep, runs, cost),
            "curve": [[point.round, point.value] for point in runs[0].scores],
            "losses": [round(record.loss, 4) for record in runs[0].rounds],
            "waits": [[record.wait for record in run.rounds] for run in runs],
            "decisions": [record.decision for record in runs[0].rounds],
        }
    return {
        "seeds": [run.config["seed"] for run in fedrep],
        "targets": targets,
        "fedrep": _others(fedrep),
        "srpfl": _others(schedule),
        "auto": costs,
    }


def _others(runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "final": fmean(_final(run) for run in runs),
        "slow": _slow(runs),
        "deciles": deciles(runs),
    }


def verdict(found: dict[str, Any]) -> dict[str, Any]:
    """Auto's times over those of the two others, by C and target; differences of the slow."""
    answer: dict[str, Any] = {
        "mean targets": {mark: round(fmean(own), 4) for mark, own in found["targets"].items()}
    }
    for cost, runs in found["auto"].items():
        answer[f"C = {cost}"] = {
            mark: {name: _ratio(times["auto"], times[name]) for name in ("fedrep", "srpfl")}
            for mark, times in runs["times"].items()
        } | {"final": round(runs["final"] - found["fedrep"]["final"], 4)}
        if runs["slow"] is not None:
            answer[f"C = {cost}"]["slow"] = round(runs["slow"] - found["fedrep"]["slow"], 4)
    if "deciles" in found["fedrep"]:  # summaries of earlier studies have none
        answer["final by speed, slowest tenth first"] = {
            "fedrep": found["fedrep"]["deciles"],
            "srpfl": found["srpfl"]["deciles"],
            **{f"auto, C = {cost}": runs["deciles"] for cost, runs in found["auto"].items()},
        }
    return answer


def _ratio(time: float | None, other: float | None) -> float | None:
    return round(time / other, 3) if time is not None and other else None


def write(file: Path, found: dict[str, Any]) -> None:
    """Keep a summary."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found, indent=1) + "\n")


LAST = 5  # final accuracy is the mean of the last so many evaluations


def _final(run: Run) -> float:
    return fmean(point.value for point in run.scores[-LAST:])


def _in_the_time_of(others: Sequence[Run], runs: Sequence[Run], cost: float) -> dict[str, float]:
    """The accuracy that runs have come to when the others of the same seeds are over: of all
    clients, and of the slowest fifth."""
    last = [
        [
            record
            for record in run.evaluations
            if record.kind == run.config["headline"] and record.time(cost) <= other.time(cost)
        ][-1]
        for run, other in zip(runs, others, strict=True)
    ]
    return {
        "all": fmean(record.value for record in last),
        "slow": fmean(
            fmean(record.clients[client] for client in _slowest(run))
            for run, record in zip(runs, last, strict=True)
        ),
    }


def _slow(runs: Sequence[Run]) -> float:
    """Final accuracy of the slowest fifth of the clients."""
    return fmean(
        fmean(point.clients[client] for point in run.scores[-LAST:] for client in _slowest(run))
        for run in runs
    )


def deciles(runs: Sequence[Run]) -> list[float]:
    """Final accuracy of each tenth of the clients, the slowest first."""
    tenths: list[list[float]] = [[] for _ in range(10)]
    for run in runs:
        order = slowest_first(run)
        for place, client in enumerate(order):
            last = [point.clients[client] for point in run.scores[-LAST:]]
            tenths[10 * place // len(order)].append(fmean(last))
    return [round(fmean(tenth), 4) for tenth in tenths if tenth]


def _slowest(run: Run) -> list[int]:
    """The slowest fifth."""
    order = slowest_first(run)
    return order[: max(1, len(order) // 5)]


def _accuracy_at(run: Run, round: int) -> float:
    return next(point.value for point in run.scores if point.round >= round)


def _mean_time(runs: Sequence[Run], targets: Sequence[float], cost: float) -> float | None:
    times = [
        run.time_to(target, communication=cost) for run, target in zip(runs, targets, strict=True)
    ]
    reached = [time for time in times if time is not None]
    return fmean(reached) if len(reached) == len(times) else None

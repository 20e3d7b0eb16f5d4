"""The other answers to stragglers, under one clock: the same data, model, seeds and local work.

A run is one line of ``SETTING.jsonl``; lines that are there are not played again, so a study that
was stopped goes on where it was. Table and picture follow from the lines.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from srpfl.errors import ConfigError, DivergedError, unknown
from srpfl.loop.simulation import simulate
from srpfl.options.config import Config
from srpfl.options.experiment import experiment
from srpfl.runs.records import half_accuracies, mean_times
from srpfl.runs.run import Run

Line = dict[str, Any]
POINTS = 15  # evaluations of a run
MARK = 0.4  # the target is what "everyone" reaches after this part of its rounds


@dataclass(frozen=True)
class Policy:
    """A policy, by the number of clients that are asked (or at work) at a time."""

    label: str
    options: Callable[[int], Mapping[str, Any]]
    answers: Callable[[int], float]  # about so many count in a round: all get as much local work
    sees_cost: bool = False  # a run for each C
    selects: bool = False  # chooses among more clients than it asks
    methods: Mapping[str, str] = field(default_factory=dict)  # what it needs in a method's place


POLICIES = {
    "everyone": Policy("everyone", lambda n: {"participation": "everyone"}, lambda n: n),
    "first-80": Policy(
        "first 80 %",
        lambda n: {"participation": "first", "first": max(1, round(0.8 * n))},
        lambda n: 0.8 * n,
    ),
    "first-50": Policy(
        "first half",
        lambda n: {"participation": "first", "first": max(1, n // 2)},
        lambda n: 0.5 * n,
    ),
    "deadline": Policy(
        "median deadline", lambda n: {"participation": "typical-deadline"}, lambda n: 0.5 * n
    ),
    "partial": Policy(
        "deadline, partial work",
        lambda n: {"participation": "typical-deadline", "set": ["participation.partial=true"]},
        lambda n: 0.8 * n,
    ),
    "over-selection": Policy(
        "ask 1.3 times", lambda n: {"participation": "over-selection"}, lambda n: n, selects=True
    ),
    "oort": Policy("Oort", lambda n: {"participation": "oort"}, lambda n: n, selects=True),
    "tifl": Policy("TiFL", lambda n: {"participation": "tifl"}, lambda n: n, selects=True),
    "fedbuff": Policy(
        "FedBuff",
        lambda n: {"participation": "fedbuff", "set": [f"participation.k={max(1, n // 5)}"]},
        lambda n: max(1, n // 5),
        sees_cost=True,
    ),
    "fedasync": Policy(
        "FedAsync", lambda n: {"participation": "fedasync"}, lambda n: 1.0, sees_cost=True
    ),
    "ca2fl": Policy(
        "FedBuff + CA2FL",
        lambda n: {
            "participation": "fedbuff",
            "set": [f"participation.k={max(1, n // 5)}", "participation.staleness=constant"],
        },
        lambda n: max(1, n // 5),
        sees_cost=True,
        methods={"fedrep": "ca2fl-rep", "fedavg-ft": "ca2fl"},
    ),
    "doubling": Policy(
        "doubling (SRPFL)", lambda n: {"participation": "doubling"}, lambda n: 0.7 * n
    ),
    "auto": Policy("Auto", lambda n: {"participation": "auto"}, lambda n: 0.5 * n, sees_cost=True),
}


@dataclass(frozen=True)
class Setting:
    """What is trained, on which clock."""

    title: str
    options: Mapping[str, Any]
    clients: int
    asked: int  # or at work, at a time
    rounds: int  # of "everyone": the others get as many local updates
    costs: tuple[float, ...] = (0.0,)
    policies: tuple[str, ...] = field(default=())

    @property
    def played(self) -> list[str]:
        """The policies that make sense here: who asks all clients has nothing to select."""
        partial = self.asked < self.clients
        names = self.policies or tuple(POLICIES)
        return [name for name in names if partial or not POLICIES[name].selects]

    def among(self, wanted: Sequence[str]) -> list[str]:
        """Those of the policies that are wanted; all of them, where none are named."""
        for name in wanted:
            if name not in POLICIES:
                raise unknown("policy", name, POLICIES)
        return [name for name in self.played if name in wanted or not wanted]


_SHORT = {"head_epochs": 2, "body_epochs": 1, "tuning_epochs": 3}
_DIGITS = {"data": "digits", "method": "fedrep", **_SHORT}
_HAR = {
    "data": "har",
    "model": "mlp",
    "method": "fedrep",
    "lr": 0.01,
    **_SHORT,
    "set": ["data.inputs=features", "model.hidden=[32]"],
}
_FEMNIST = {
    "data": "femnist",
    "partition": "natural",
    "method": "fedrep",
    "per_client": 100,
    **_SHORT,
    "set": ["model.hidden=[64]"],
}
_CIFAR10 = {"data": "cifar10", "method": "fedrep", "clock": "fixed", "precision": "tf32"}
_ALL_COSTS = (0.0, 10.0, 100.0)
SETTINGS = {
    "digits-fixed": Setting(
        "digits, fixed speeds", {**_DIGITS, "clock": "fixed"}, 20, 20, 40, costs=_ALL_COSTS
    ),
    "digits-dynamic": Setting(
        "digits, changing speeds", {**_DIGITS, "clock": "dynamic"}, 20, 20, 40, costs=_ALL_COSTS
    ),
    "digits-pareto": Setting("digits, heavy tails", {**_DIGITS, "clock": "pareto"}, 20, 20, 40),
    "digits-fedavg-ft": Setting(
        "digits, FedAvg-FT, fixed speeds",
        {**_DIGITS, "method": "fedavg-ft", "clock": "fixed"},
        20,
        20,
        40,
        costs=_ALL_COSTS,
    ),
    "digits-sampled": Setting(
        "digits, 10 of 60 at a time, fixed speeds", {**_DIGITS, "clock": "fixed"}, 60, 10, 120
    ),
    "digits-phones": Setting(
        "digits, 10 of 120 phones that come and go",
        {**_DIGITS, "clock": "phones", "set": ["clock.seconds_per_sample=0.5"]},
        120,
        10,
        120,
    ),
    "har": Setting(
        "activity by person, fixed speeds", {**_HAR, "clock": "fixed"}, 21, 21, 20, costs=_ALL_COSTS
    ),
    "femnist": Setting(
        "handwriting by writer, changing speeds",
        {**_FEMNIST, "clock": "dynamic"},
        376,
        376,
        20,
        costs=_ALL_COSTS,
    ),
    "femnist-sampled": Setting(
        "40 of 376 writers at a time, fixed speeds", {**_FEMNIST, "clock": "fixed"}, 376, 40, 100
    ),
    # The paper's network and numbers: these need a GPU. The short one takes some five minutes.
    "cifar10": Setting("CIFAR-10, fixed speeds", _CIFAR10, 100, 100, 150, costs=_ALL_COSTS),
    "cifar10-50": Setting(
        "CIFAR-10, fixed speeds, 50 rounds, bfloat16",
        {**_CIFAR10, "precision": "bfloat16"},
        100,
        100,
        50,
        costs=_ALL_COSTS,
    ),
}


def study(
    names: Sequence[str],
    out: Path,
    *,
    seeds: Sequence[int],
    overrides: Mapping[str, Any],
    traces: Path | None = None,
    runs: Path | None = None,
    minutes: float = math.inf,
    policies: Sequence[str] = (),
    note: str | None = None,
) -> Iterator[Line]:
    """Play what is missing and yield it, run by run; what is there is left alone. The note goes
    into the lines: which code played them."""
    ends = time.monotonic() + 60 * minutes
    for name in names:
        if name not in SETTINGS:
            raise unknown("setting", name, SETTINGS)
        setting, there = SETTINGS[name], {key(line) for line in lines(out, name)}
        for seed in seeds:
            for policy in setting.among(policies):
                for cost in setting.costs if POLICIES[policy].sees_cost else setting.costs[:1]:
                    if (policy, seed, cost) in there:
                        continue
                    if time.monotonic() > ends:
                        return
                    config = config_of(name, policy, seed, cost, overrides, traces)
                    folder = None if runs is None else runs / name / f"{policy}-C{cost:g}-{seed}"
                    try:
                        run = simulate(**experiment(config), out=folder)
                        line = summary(run, policy, seed, cost)
                    except DivergedError as error:  # a result too: it is not tried again
                        line = {"policy": policy, "seed": seed, "C": cost, "diverged": str(error)}
                    line |= {"note": note} if note else {}
                    out.mkdir(parents=True, exist_ok=True)
                    with (out / f"{name}.jsonl").open("a") as file:
                        file.write(json.dumps(line) + "\n")
                    yield {"setting": name, **line}


def config_of(
    name: str,
    policy: str,
    seed: int,
    cost: float,
    overrides: Mapping[str, Any],
    traces: Path | None,
) -> Config:
    """The options of one run."""
    setting, chosen = SETTINGS[name], POLICIES[policy]
    own = dict(chosen.options(setting.asked))
    told = [*setting.options.get("set", ()), *own.pop("set", ())]
    if setting.options.get("clock") == "phones":
        if traces is None:
            raise ConfigError(f"{name} needs the folder of phones' traces: --traces DIR")
        told.append(f"clock.traces={traces}")
    rounds = math.ceil(setting.rounds * setting.asked / chosen.answers(setting.asked))
    return Config.of(
        {
            **setting.options,
            "method": chosen.methods.get(setting.options["method"], setting.options["method"]),
            "clients": setting.clients,
            "sample": 1.0 if setting.asked == setting.clients else setting.asked,
            "communication": cost,
            "seed": seed,
            "rounds": rounds,
            "evaluate_every": max(1, rounds // POINTS),
            **own,
            "set": told or None,
            **overrides,
        },
        source=name,
    )


def summary(run: Run, policy: str, seed: int, cost: float) -> Line:
    """All that the table needs of a run."""
    assert run.state is not None
    last, rounds = run.scores[-1], run.rounds
    asked = sum(record.asked for record in rounds)
    counted = sum(len(record.participants) for record in rounds)
    dropped = sum(len(record.late) for record in rounds)
    bytes_ = sum(value.numel() * value.element_size() for value in run.state.shared.values())
    heard = mean_times(rounds)
    own = [e for e in run.evaluations if e.kind == run.config["headline"]]
    slowest = sorted(heard, key=lambda client: -heard[client])
    return {
        "policy": policy,
        "seed": seed,
        "C": cost,
        "curve": [[e.round, round(e.computing, 6), round(e.value, 5)] for e in own],
        "final": last.value,
        "worst": _worst(own[-1].clients),
        "slow": half_accuracies(own[-1], slowest)[0],
        "asked": asked,
        "counted": counted,
        "dropped": dropped,
        "lost": sum(len(record.lost) for record in rounds),
        "megabytes": round((asked + counted + dropped) * bytes_ / 1e6, 3),
        "charged": run.config["communication"],  # C by round, where it is not in the times
    }


def _worst(clients: Sequence[float]) -> float:
    """Mean of the worst tenth of the clients."""
    order = sorted(clients)
    return fmean(order[: max(1, len(order) // 10)])


def lines(out: Path, name: str) -> list[Line]:
    """The runs of a setting so far; half a line, of a study that was stopped, is left out."""
    path = out / f"{name}.jsonl"
    if not path.exists():
        return []
    whole = [text for text in path.read_text().splitlines(keepends=True) if text.endswith("\n")]
    return [json.loads(text) for text in whole]


def key(line: Line) -> tuple[str, int, float]:
    """Policy, seed and C: which run it was."""
    return line["policy"], line["seed"], line["C"]

"""Methods, policies, clocks, tasks, wires and engines in any mix: engines agree, and a run that was
stopped after any round goes on bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import srpfl
from algorithms.every import KINDS, algorithm, remembered
from srpfl.clock import Dropouts, Pareto, TwoGroups
from srpfl.data.base import Pooled, Samples
from srpfl.errors import ConfigError
from srpfl.loop.transport import NoAnswerError
from srpfl.models import MLP
from srpfl.participation import (
    Compass,
    DivFL,
    Fair,
    FedAsync,
    FedBuff,
    FedCS,
    FlanpRule,
    Oort,
    OverSelection,
    PowerOfChoice,
    SemiAsync,
    TiFL,
    TypicalDeadline,
)

CLIENTS, ROUNDS, CLASSES = 6, 4, 3
POLICIES: dict[str, Any] = {
    "everyone": srpfl.Everyone(),
    "some": srpfl.Everyone(sample=0.5),
    "doubling": srpfl.Doubling(start=1, every=1),
    "first": srpfl.FirstN(n=3),
    "deadline": srpfl.Deadline(seconds=0.8),
    "partial": srpfl.Deadline(seconds=0.8, partial=True),
    "typical": TypicalDeadline(),
    "auto": srpfl.Auto(start=2),
    "flanp": FlanpRule(start=2),
    "more": OverSelection(sample=0.5),
    "oort": Oort(sample=0.5),
    "choice": PowerOfChoice(sample=0.5),
    "fair": Fair(sample=0.5),
    "fedcs": FedCS(sample=0.5),
    "tifl": TiFL(sample=0.5),
    "divfl": DivFL(sample=0.5),
    "fedbuff": FedBuff(k=2),
    "fedasync": FedAsync(staleness="polynomial"),
    "semi": SemiAsync(k=2),
    "compass": Compass(),
    "budget": srpfl.Budgeted(policy=srpfl.Everyone(sample=0.5), updates=3),
}
CLOCKS: dict[str, Any] = {
    "fixed": srpfl.FixedExponential(),
    "dynamic": srpfl.DynamicExponential(communication=0.5),
    "pareto": Pareto(),
    "groups": TwoGroups(),
    "dropouts": Dropouts(share=0.1),
}
TASKS: dict[str, Any] = {
    "classification": srpfl.Classification(),
    "regression": srpfl.Regression(),
    "multi-label": srpfl.MultiLabel(),
}
WIRES = ("full", "full", "int8", "top:0.3")
ENGINES = ("vectorised", "vectorised", "workers")


class Mix(NamedTuple):
    method: str
    policy: str
    clock: str
    task: str
    wire: str
    engine: str
    stop: int  # after so many rounds
    seed: int


def mixes(count: int) -> list[Mix]:
    """Each method, policy, clock and so on about as often as the others."""
    rng = np.random.default_rng(16)
    kinds = (list(KINDS), list(POLICIES), list(CLOCKS), list(TASKS), WIRES, ENGINES)
    columns = [
        [kind[i % len(kind)] for i in rng.permutation(-(-count // len(kind)) * len(kind))[:count]]
        for kind in kinds
    ]
    return [Mix(*row, 1 + i % (ROUNDS - 1), i) for i, row in enumerate(zip(*columns, strict=True))]


def data(task: str, seed: int) -> Pooled:
    """Clients with 3 to 9 samples."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 10, size=CLIENTS)
    x = rng.normal(size=(sizes.sum(), 4)).astype(np.float32)
    scores = x @ rng.normal(size=(4, CLASSES)) + 0.1 * rng.normal(size=(len(x), CLASSES))
    y: Any = {
        "classification": scores.argmax(1),
        "regression": scores[:, 0].astype(np.float32),
        "multi-label": (scores > 0).astype(np.int64),
    }[task]
    parts = np.split(np.arange(len(x)), np.cumsum(sizes)[:-1])
    return Pooled(task, Samples(x, y), Samples(x, y), parts, parts, CLASSES)


def model(mix: Mix) -> torch.nn.Module:
    outputs = 1 if mix.task == "regression" else CLASSES
    if mix.method == "FedBN":
        layers = torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU()
        return torch.nn.Sequential(*layers, torch.nn.Linear(8, outputs))
    return MLP(4, () if mix.method == "MOCHA" else (8, 5), classes=outputs)


def play(mix: Mix, engine: str, **choices: Any) -> srpfl.Run:
    return srpfl.simulate(
        data=data(mix.task, mix.seed),
        model=model(mix),
        algorithm=replace(algorithm(mix.method), wire=mix.wire),
        participation=POLICIES[mix.policy],
        clock=CLOCKS[mix.clock],
        task=TASKS[mix.task],
        rounds=ROUNDS,
        seed=mix.seed,
        evaluate_every=2,
        precision="float64",
        engine=engine,
        **choices,
    )


class Stop(srpfl.Watcher):
    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def after(self, run: srpfl.Run) -> bool:
        return len(run.rounds) == self.rounds


QUICK = 8


@pytest.mark.parametrize(
    "mix",
    [
        pytest.param(mix, marks=[pytest.mark.slow] if i >= QUICK else [], id="-".join(mix[:6]))
        for i, mix in enumerate(mixes(60))
    ],
)
def test_engines_agree_and_a_stopped_run_goes_on(mix: Mix, tmp_path: Path) -> None:
    try:
        alone = play(mix, "loop")
    except (ConfigError, NoAnswerError) as error:  # a mix that makes no sense
        pytest.skip(str(error))
    other = play(mix, mix.engine)
    play(mix, mix.engine, out=tmp_path, watchers=[Stop(mix.stop)])
    again = play(mix, mix.engine, out=tmp_path, resume=True)

    assert told(again) == told(other)
    expected, found, resumed = map(remembered, (alone, other, again))
    assert found.keys() == expected.keys() == resumed.keys()
    for name, value in found.items():
        assert torch.equal(resumed[name], value), name
    assert [r.participants for r in other.rounds] == [r.participants for r in alone.rounds]
    assert [r.arrivals for r in other.rounds] == [r.arrivals for r in alone.rounds]
    for name, value in expected.items():  # sums in another order, in double precision
        torch.testing.assert_close(found[name], value, rtol=1e-8, atol=1e-9, msg=name)


def told(run: srpfl.Run) -> list[Any]:
    return [*run.rounds, *((each.round, each.kind, each.value) for each in run.evaluations)]

"""Every engine gives the reference's answer to the same job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from torch import Tensor

from srpfl.engine import draws, phases, steps
from srpfl.engine.base import Engine
from srpfl.engine.loop import LoopEngine
from srpfl.engine.store import Held, Part, Store
from srpfl.engine.vectorised import VectorisedEngine
from srpfl.engine.workers import WorkersEngine
from srpfl.errors import SrpflWarning

from . import zoo
from .cases import AWKWARD, CASES, Outcome, distance, play

# Rounding alone: every difference of order, data or state is many orders larger.
DOUBLE, SINGLE = 1e-9, 1e-4


# What takes three seconds and more waits for `make test-all`.
LONG = {"hf-maml-batchnorm", "fedrep-recomputed", "ditto-batchnorm", "fedrep-attention"}
LONG |= {"fedavg-batchnorm-adam", "fedavg-lstm", "fedrep-gru"}


def marked(names: Iterable[str]) -> list[Any]:
    return [pytest.param(n, marks=[pytest.mark.slow] if n in LONG else []) for n in names]


def stacked(name: str, precision: str, together: int | None, device: str = "cpu") -> Engine:
    case = CASES[name]
    return VectorisedEngine(
        case.model(),
        case.data(),
        task=case.task,
        precision=precision,
        together=together,
        device=device,
    )


@cache
def reference(name: str, precision: str) -> Outcome:
    case = CASES[name]
    return play(LoopEngine(case.model(), case.data(), task=case.task, precision=precision), case)


def check(name: str, engine: Engine, precision: str = "float64") -> None:
    outcome, expected = play(engine, CASES[name]), reference(name, precision)
    exact = precision == "float64"
    assert distance(outcome, expected, exact=exact) < (DOUBLE if exact else SINGLE)
    if precision == "float64":
        for mine, yours in zip(outcome.scores, expected.scores, strict=True):
            assert mine == pytest.approx(yours, rel=DOUBLE, abs=DOUBLE)


@pytest.mark.parametrize("name", marked(CASES))
def test_one_stack_agrees_with_the_loop(name: str) -> None:
    check(name, stacked(name, "float64", together=100))


@pytest.mark.parametrize("name", ["fedavg", "fedrep-augment", "fedavg-adam"])
def test_small_stacks_agree_with_the_loop(name: str) -> None:
    check(name, stacked(name, "float64", together=2))


# Workers only spread clients over engines that are tested above: one case of each kind of job.
SPREAD = ["fedavg", "fedrep-augment", "lg-fedavg", "hf-maml", "scaffold", "ditto", "fedadam"]
SPREAD += ["fedbn", "fedrep-gru", "fedrep-masked-fixed", "fedrep-two-inputs", "fedrep-regression"]


@pytest.mark.parametrize("name", SPREAD)
def test_workers_agree_with_the_loop(name: str) -> None:
    case = CASES[name]

    def plain() -> Engine:
        return LoopEngine(case.model(), case.data(), task=case.task, precision="float64")

    with WorkersEngine(plain, case.data(), workers=2) as engine:
        check(name, engine)


@pytest.mark.parametrize("name", marked([*SPREAD, "fedrep-dropout-augment", "fedrep-batchnorm"]))
def test_workers_agree_with_the_loop_in_single_precision(name: str) -> None:
    with WorkersEngine(
        lambda: stacked(name, "float32", together=None), CASES[name].data(), workers=2
    ) as engine:
        check(name, engine, "float32")


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("name", CASES)
def test_a_gpu_agrees_with_the_loop(name: str, precision: str) -> None:
    check(name, stacked(name, precision, together=None, device="cuda"), precision)


@pytest.mark.gpu
@pytest.mark.parametrize("how", AWKWARD)
def test_a_gpu_takes_steps_that_a_graph_cannot_hold(how: str) -> None:
    case = AWKWARD[how]
    plain = LoopEngine(case.model(), case.data(), task=case.task, precision="float64")
    engine = VectorisedEngine(
        case.model(), case.data(), task=case.task, precision="float64", device="cuda"
    )
    with pytest.warns(SrpflWarning, match=zoo.AWKWARD[how]):
        outcome = play(engine, case)
    assert distance(outcome, play(plain, case)) < DOUBLE


def neighbours_data(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Store.hold

    def shifted(self: Store, part: Part, clients: list[int]) -> Held:
        held = original(self, part, clients)
        return held._replace(x=held.x.roll(1, 0))

    monkeypatch.setattr(Store, "hold", shifted)


def one_order_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def same(job: object, clients: list[int], *rest: object) -> draws.Draws:
        return draws.draw(job, [0] * len(clients), *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(phases, "draw", same)


def one_mask_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def same(*given: object) -> draws.Draws:
        found = draws.draw(*given)  # type: ignore[arg-type]
        return replace(found, dropout=found.dropout[:1].expand_as(found.dropout))

    monkeypatch.setattr(phases, "draw", same)


def neighbours_momentum(monkeypatch: pytest.MonkeyPatch) -> None:
    original = phases.Phases._moments

    def rolled(self: phases.Phases, *given: object) -> object:
        state = original(self, *given)  # type: ignore[arg-type]
        return {
            slot: {name: value.roll(1, 0) for name, value in values.items()}
            for slot, values in state.items()
        }

    monkeypatch.setattr(phases.Phases, "_moments", rolled)


def momentum_after_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_move(_active: Tensor, after: steps.Carried, _before: object) -> steps.Carried:
        return after

    monkeypatch.setattr(steps, "only_active", all_move)


@pytest.mark.parametrize(
    ("leak", "name"),
    [
        (neighbours_data, "fedavg"),
        (neighbours_data, "fedrep"),
        (one_order_for_all, "fedavg"),
        (one_order_for_all, "fedrep-augment"),
        (one_mask_for_all, "fedrep-dropout"),
        (neighbours_momentum, "fedper-two-phases"),
        (momentum_after_the_last_step, "fedavg-adam"),
    ],
)
def test_a_leak_between_clients_is_noticed(
    monkeypatch: pytest.MonkeyPatch, leak: Callable[[pytest.MonkeyPatch], None], name: str
) -> None:
    leak(monkeypatch)
    outcome = play(stacked(name, "float64", together=100), CASES[name])
    assert distance(outcome, reference(name, "float64")) > 1000 * DOUBLE

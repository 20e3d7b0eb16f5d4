"""Every engine gives the reference's answer to the same job."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from .cases import CASES, Case, Outcome, distance, play

from srpfl.engine.base import Engine
from srpfl.engine.loop import LoopEngine
from srpfl.engine.vectorised import VectorisedEngine

Make = Callable[[Case, str], Engine]


def vectorised(together: int | None, device: str = "cpu") -> Make:
    def make(case: Case, precision: str) -> Engine:
        return VectorisedEngine(
            case.model(), case.data(), precision=precision, together=together, device=device
        )

    return make


ENGINES = {"one stack": vectorised(100), "stacks of two": vectorised(2), "auto": vectorised(None)}
if torch.cuda.is_available():
    ENGINES["gpu"] = vectorised(None, "cuda")

references: dict[tuple[str, str], Outcome] = {}


def reference(name: str, precision: str) -> Outcome:
    if (name, precision) not in references:
        case = CASES[name]
        engine = LoopEngine(case.model(), case.data(), precision=precision)
        references[name, precision] = play(engine, case)
    return references[name, precision]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES)
def test_agrees_with_the_loop_in_double_precision(case: str, engine: str) -> None:
    outcome = play(ENGINES[engine](CASES[case], "float64"), CASES[case])
    expected = reference(case, "float64")
    # Rounding alone: every difference of order or data is many orders larger.
    assert distance(outcome, expected) < 1e-9
    assert outcome.correct == expected.correct


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_the_loop_in_single_precision(case: str) -> None:
    outcome = play(ENGINES["auto"](CASES[case], "float32"), CASES[case])
    assert distance(outcome, reference(case, "float32")) < 1e-4

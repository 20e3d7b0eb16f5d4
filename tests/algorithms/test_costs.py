"""What clocks see of an algorithm: bytes down and up, and what a step costs."""

from __future__ import annotations

from typing import Any

import numpy as np

import srpfl
import tiny
from srpfl.clock.base import Work

MODEL = {"fc1": 4 * 8 + 8, "fc2": 8 * 5 + 5, "fc3": 5 * 3 + 3}  # numbers of each layer
WHOLE = 4 * sum(MODEL.values())  # bytes


class Noting:
    """A clock on which all are as fast, and which keeps what it was told."""

    communication = 0.0
    fixed = True

    def __init__(self) -> None:
        self.seen: list[Work] = []

    def times(self, seed: int, round: int, clients: Any, population: int, work: Work) -> Any:
        self.seen.append(work)
        return np.arange(len(clients)) + 1.0


def works(algorithm: Any, rounds: int = 2, **choices: Any) -> list[Work]:
    clock = Noting()
    everyone = srpfl.Everyone()
    kept = {"participation": everyone, "evaluate_every": 0, **choices}
    tiny.simulate(algorithm=algorithm, clock=clock, rounds=rounds, **kept)
    return clock.seen


def test_answers_weigh_what_they_hold_and_not_what_was_sent() -> None:
    for algorithm, down, up in [
        (srpfl.FedAvg(), WHOLE, WHOLE),
        (srpfl.FedRep(), WHOLE - 4 * MODEL["fc3"], WHOLE - 4 * MODEL["fc3"]),
        (srpfl.SCAFFOLD(), 2 * WHOLE, 2 * WHOLE),  # c, and how c_i has changed
        (srpfl.MimeLite(), 2 * WHOLE, 2 * WHOLE),  # the momentum, and a gradient
        (srpfl.IFCA(clusters=3), 3 * WHOLE, WHOLE + 3 * 4),  # all models, one and the choice
        (srpfl.MOCHA(tasks=6), 7 * WHOLE + 6 * 6 * 4, WHOLE),  # all tasks' models and Ω, its own
    ]:
        work = works(algorithm)[0]
        assert (work.down, work.up) == (down, up), algorithm


def test_a_policy_that_wants_gradients_pays_for_them() -> None:
    # FLANP's rule looks at the norm of the gradient; the last layer is not shared.
    policy = srpfl.FlanpRule(start=2, convexity=1.0)
    assert works(srpfl.FedAvg(), participation=policy)[0].up == 2 * WHOLE


def test_partial_training_sends_back_the_layers_that_were_trained() -> None:
    layers = [4 * size for size in MODEL.values()]
    for round, work in enumerate(works(srpfl.PartialTraining(), rounds=3)):
        expected = [layers[(client + round) % 3] for client in range(6)]
        assert np.array(work.up).tolist() == expected
        assert (work.down >= WHOLE).all()  # type: ignore[union-attr]
    [work] = works(srpfl.PartialTraining(layers=3), rounds=1)
    assert np.array(work.up).tolist() == [WHOLE] * 6


def test_every_clock_charges_a_smaller_model_less() -> None:
    ones, some = np.ones(4, dtype=int), np.arange(4)
    half = np.array([1.0, 0.5, 0.25, 1.0])
    for clock in (
        srpfl.FixedExponential(),
        srpfl.IIDExponential(),
        srpfl.DynamicExponential(),
        srpfl.clock.Pareto(),
        srpfl.clock.TwoGroups(),
        srpfl.clock.Equal(),
    ):
        whole = clock.times(0, 0, some, 4, Work(ones, ones, 0, 0))
        less = clock.times(0, 0, some, 4, Work(ones, ones, 0, 0, half))
        assert np.array_equal(less, whole * half)

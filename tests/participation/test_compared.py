"""A policy that compares answers sees how clients differ, also where an algorithm hides it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import srpfl
from algorithms.quadratic import CLIENTS, SAME, gradient, played
from srpfl.loop.uncorrected import uncorrected
from srpfl.participation import Budgeted
from srpfl.participation.base import Answer, Memory, Outcome


@dataclass(frozen=True, kw_only=True)
class Compares(srpfl.Everyone):
    """Writes down what it is shown."""

    compares: ClassVar[bool] = True

    def learn(self, memory: Memory, outcome: Outcome) -> Memory:
        seen = [answer.shared["line.weight"][0].tolist() for answer in outcome.answers]
        who = [answer.client for answer in outcome.answers]
        sent = outcome.sent["line.weight"][0].tolist()
        gradients = "gradient" in outcome.answers[0].sent
        return {"sent": sent, "seen": seen, "who": who, "gradients": gradients}


@dataclass(frozen=True, kw_only=True)
class Looks(Compares):
    compares: ClassVar[bool] = False


def told(algorithm: Any, policy: Any, rounds: int = 30) -> Any:
    run = played(algorithm, rounds, participation=policy)
    assert run.state is not None
    return run.state.memory


@pytest.mark.parametrize("kind", [srpfl.SCAFFOLD, srpfl.FedGATE])
@pytest.mark.parametrize("wrapped", [False, True])
def test_it_is_shown_steps_along_each_clients_gradient(kind: Any, wrapped: bool) -> None:
    policy = Budgeted(policy=Compares(), updates=99) if wrapped else Compares()
    memory = told(kind(**SAME), policy)
    x, seen = np.array(memory["sent"]), np.array(memory["seen"])
    own = np.stack([gradient(client, x) for client in memory["who"]])
    steps = x - seen
    scale = np.linalg.norm(steps) / np.linalg.norm(own)
    assert scale > 0
    np.testing.assert_allclose(steps, scale * own, rtol=0, atol=1e-9 * np.abs(steps).max())


@pytest.mark.parametrize("kind", [srpfl.SCAFFOLD, srpfl.FedGATE])
def test_corrected_answers_agree_and_what_is_shown_does_not(kind: Any) -> None:
    def spread(policy: Any) -> float:
        memory = told(kind(**SAME), policy)
        updates = np.array(memory["seen"]) - memory["sent"]
        return float(updates.var(0).sum() / (updates.mean(0) ** 2).sum())

    assert spread(Looks()) < spread(Compares()) / 10


def test_nobody_sends_gradients_where_answers_are_not_compared_or_not_corrected() -> None:
    assert told(srpfl.SCAFFOLD(**SAME), Compares(), 1)["gradients"]
    assert not told(srpfl.SCAFFOLD(**SAME), Looks(), 1)["gradients"]
    assert not told(srpfl.FedAvg(**SAME), Compares(), 1)["gradients"]


def test_by_hand() -> None:
    """The mean gradient is (3, 4), of length 5; the mean answer is 10 away."""
    sent = {"w": torch.tensor([1.0, 1.0]), "count": torch.tensor(3)}

    def answer(client: int, y: list[float], g: list[float]) -> Answer:
        shared = {"w": torch.tensor(y), "count": torch.tensor(4)}
        slots = {"gradient": {"w": torch.tensor(g), "head": torch.ones(2)}}
        return Answer(client, 1.0, shared, 0.5, 3, slots)

    two = [answer(0, [1.0, -9.0], [6.0, 0.0]), answer(1, [1.0, -9.0], [0.0, 8.0])]
    shown = uncorrected(sent, two)
    assert [each.shared["w"].tolist() for each in shown] == [[-11.0, 1.0], [1.0, -15.0]]
    assert [(each.client, each.shared["count"].item()) for each in shown] == [(0, 4), (1, 4)]
    still = uncorrected(sent, [answer(0, [1.0, -9.0], [0.0, 0.0])])
    assert still[0].shared["w"].tolist() == [1.0, 1.0]


@dataclass(frozen=True, kw_only=True)
class Deceived(srpfl.Auto):
    """Auto as it was: it compares the corrected answers."""

    compares: ClassVar[bool] = False


def test_auto_does_not_stay_with_few_of_scaffolds_clients() -> None:
    """Their answers agree with one another, but not with those of the others."""
    rng = np.random.default_rng(1)
    x = [rng.normal(size=(6, 2)) for _ in range(4 * CLIENTS)]
    y = [each @ rng.normal(size=2) for each in x]

    def heard(policy: Any) -> int:
        run = played(
            srpfl.SCAFFOLD(**SAME), 80, x=x, y=y, participation=policy, engine="vectorised"
        )
        return sum(len(record.participants) for record in run.rounds[40:])

    assert heard(srpfl.Auto(start=2)) > 1.5 * heard(Deceived(start=2))

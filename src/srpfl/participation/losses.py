"""Choosing by losses and by age: power of choice, and fairness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from srpfl.errors import ConfigError, number
from srpfl.participation.base import Call, Memory, Outcome, uniform
from srpfl.participation.selecting import Selecting, of, weighted


@dataclass(frozen=True, kw_only=True)
class PowerOfChoice(Selecting):
    """Of d candidates at random, those with the highest loss.

    Cho, Wang and Joshi, "Towards understanding biased client selection in federated learning"
    (AISTATS 2022), in the form that asks nothing more of clients: the loss is the one of a
    client's last answer (π_rpow-d). A client that was never heard comes first. The paper draws
    candidates by their share of the data; here all have the same chance.
    ``candidates`` is d over the number asked.
    """

    candidates: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= number("candidates", self.candidates) < np.inf:
            raise ConfigError(f"candidates must be 1 or more, not {self.candidates}")

    def choose(
        self, memory: Memory, call: Call, idle: Sequence[int], rng: np.random.Generator
    ) -> Sequence[int]:
        drawn = uniform(round(self.candidates * call.ask), idle, rng)
        losses = of(memory["seen"], drawn, "loss", np.inf)
        order = np.argsort(-losses, kind="stable")[: call.ask]
        return tuple(sorted(drawn[place] for place in order))


@dataclass(frozen=True, kw_only=True)
class Fair(Selecting):
    """Clients with a high loss, and clients not heard for long, are asked more often: with a chance
    in proportion to loss^q · age^a.

    q is that of q-fair federated learning (Li et al., ICLR 2020), here in whom to ask instead of
    how to weigh. A client that was never heard has the highest loss seen and the age of the run.
    """

    loss: float = 1.0  # q
    age: float = 1.0  # a

    def __post_init__(self) -> None:
        super().__post_init__()
        if number("loss", self.loss) < 0 or number("age", self.age) < 0:
            raise ConfigError("the exponents of loss and age are zero or more")

    def begin(self, population: int) -> Memory:
        return {**super().begin(population), "round": 0}

    def choose(
        self, memory: Memory, call: Call, idle: Sequence[int], rng: np.random.Generator
    ) -> Sequence[int]:
        seen = memory["seen"]
        losses = of(seen, idle, "loss", np.nan)
        highest = np.nanmax(losses) if not np.isnan(losses).all() else 1.0
        losses = np.maximum(np.where(np.isnan(losses), highest, losses), 1e-12)
        ages = memory["round"] - of(seen, idle, "round", -1.0)
        return weighted(call.ask, idle, losses**self.loss * ages**self.age, rng)

    def learn(self, memory: Memory, outcome: Outcome) -> Memory:
        return {**super().learn(memory, outcome), "round": outcome.round + 1}

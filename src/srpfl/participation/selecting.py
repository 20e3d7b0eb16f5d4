"""Asking fewer clients than there are: at random, or by what the server has seen of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srpfl.errors import ConfigError, number
from srpfl.participation.base import STAGE, Call, Memory, Outcome, Sampling, uniform

FloatArray = NDArray[np.float64]
Seen = Mapping[str, Mapping[str, Any]]  # client: its last loss, time, samples, round; how often


@dataclass(frozen=True, kw_only=True)
class OverSelection(Sampling):
    """Ask ``over`` times as many clients as are needed, and take the first answers.

    Bonawitz et al., "Towards federated learning at scale" (MLSys 2019): 130 % are asked.
    ``sample`` says how many are needed. With ``over=1`` this is :class:`Everyone`.

    >>> OverSelection(sample=10).call({}, round=0, population=50)
    Call(ask=13, wait=10, stage=0, draw=0, deadline=None, grace=0.0)
    """

    over: float = 1.3

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= number("over", self.over) < math.inf:
            raise ConfigError(
                f"over says how many times as many are asked: 1 or more, not {self.over}"
            )

    def call(self, memory: Memory, round: int, population: int) -> Call:
        needed = self.asked(population)
        # Rounded first: 1.3 * 10 is a little more than 13 in floating point.
        asked = min(population, math.ceil(np.round(self.over * needed, 9)))
        return Call(ask=asked, wait=needed, draw=self.drawn(round, round // STAGE))


@dataclass(frozen=True, kw_only=True)
class Selecting(OverSelection):
    """Policies that choose whom to ask by what was seen of each client: its latest loss, time and
    number of samples. A client whose answer came too late took at least as long as the round."""

    sample: float | int = 0.1
    over: float = 1.0

    def begin(self, population: int) -> Memory:
        if self.asked(population) >= population:
            raise ConfigError(
                f"{type(self).__name__} chooses whom to ask, and all {population} clients are "
                "asked: sample fewer of them (sample=0.1, or --sample 0.1)"
            )
        super().begin(population)
        return {"seen": {}}

    def learn(self, memory: Memory, outcome: Outcome) -> Memory:
        return {**memory, "seen": seen_after(memory["seen"], outcome)}


def seen_after(seen: Seen, outcome: Outcome) -> Seen:
    """What is known of each client after a round."""
    known = dict(seen)
    answered = {answer.client for answer in outcome.answers}
    for answer in outcome.answers:
        before = known.get(str(answer.client), {})
        known[str(answer.client)] = {
            "loss": answer.loss,
            "time": answer.time / answer.part,
            "samples": answer.samples,
            "round": outcome.round,
            "often": before.get("often", 0) + 1,
        }
    for client in outcome.asked:
        if client not in answered:
            before = known.get(str(client), {})
            time = max(outcome.duration, before.get("time", 0.0))
            known[str(client)] = {**before, "time": time}
    return known


def of(seen: Seen, clients: Sequence[int], what: str, unknown: float) -> FloatArray:
    """One fact of each of the clients, as numbers."""
    return np.array(
        [seen.get(str(client), {}).get(what, unknown) for client in clients], dtype=float
    )


def weighted(
    count: int, clients: Sequence[int], weights: FloatArray, rng: np.random.Generator
) -> tuple[int, ...]:
    """So many of the clients, without replacement, each with a chance in proportion to its weight;
    uniform where no weight is positive."""
    positive = int(np.count_nonzero(weights > 0))
    if positive == 0:
        return uniform(count, clients, rng)
    places = rng.choice(
        len(clients), size=min(count, positive), replace=False, p=weights / weights.sum()
    )
    taken = {clients[place] for place in places}
    rest = [client for client in clients if client not in taken]
    return tuple(sorted([*taken, *uniform(count - len(taken), rest, rng)]))

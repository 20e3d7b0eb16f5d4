"""DivFL: ask clients whose updates stand for everybody's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from srpfl.core.randomness import stream
from srpfl.core.split import Params
from srpfl.errors import ConfigError, whole
from srpfl.participation.base import Call, Memory, Outcome, uniform
from srpfl.participation.selecting import FloatArray, Selecting

TIE = 1e-6  # sums of distances that differ by less are equal


@dataclass(frozen=True, kw_only=True)
class DivFL(Selecting):
    """Choose S to minimise Σ_i min_{j in S} ‖g_i - g_j‖, greedily (facility location).

    Balakrishnan et al., "Diverse client selection for federated learning via submodular
    maximization" (ICLR 2022), with each client's last update for g_i, as there. A server would
    keep one model per client; here g_i is kept as ``sketch`` numbers whose distances are right on
    average (a count sketch). Clients that were never heard come first.
    """

    sketch: int = 64

    compares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if whole("sketch", self.sketch) < 1:
            raise ConfigError(f"a sketch has at least one number, not {self.sketch}")

    def begin(self, population: int) -> Memory:
        return {**super().begin(population), "sketches": {}}

    def choose(
        self, memory: Memory, call: Call, idle: Sequence[int], rng: np.random.Generator
    ) -> Sequence[int]:
        sketches = memory["sketches"]
        new = [client for client in idle if str(client) not in sketches]
        taken = uniform(call.ask, new, rng)
        if len(taken) < call.ask:
            heard = [client for client in idle if str(client) in sketches]
            places = greedy(np.array([sketches[str(c)] for c in heard]), call.ask - len(taken))
            taken += tuple(heard[place] for place in places)
        return tuple(sorted(taken))

    def learn(self, memory: Memory, outcome: Outcome) -> Memory:
        found = {
            str(answer.client): sketched(answer.shared, outcome.sent, self.sketch).tolist()
            for answer in outcome.answers
        }
        learnt = super().learn(memory, outcome)
        return {**learnt, "sketches": {**memory["sketches"], **found}}


def greedy(points: FloatArray, count: int) -> list[int]:
    """The places that bring every point closest to one of them, one by one.

    >>> greedy(np.array([[0.0], [0.1], [0.2], [9.0]]), 2)
    [1, 3]
    """
    square = (points**2).sum(1)
    apart = np.sqrt(np.maximum(square[:, None] + square[None] - 2 * points @ points.T, 0.0))
    np.fill_diagonal(apart, 0.0)
    nearest = np.full(len(points), apart.max(initial=0.0) + 1)
    taken: list[int] = []
    for _ in range(min(count, len(points))):
        left = np.minimum(nearest, apart).sum(1)
        left[taken] = np.inf
        # Of the last two that are not covered either will do: rounding must not decide.
        taken.append(int(np.argmax(left <= left.min() * (1 + TIE))))
        nearest = np.minimum(nearest, apart[taken[-1]])
    return taken


def sketched(after: Params, before: Params, size: int) -> FloatArray:
    """A client's update in a few numbers: each weight is added to one of them, with a sign."""
    sketch = np.zeros(size)
    for place, name in enumerate(sorted(after)):
        step = after[name].detach().to("cpu", torch.float64) - before[name].to("cpu", torch.float64)
        rng = stream(0, "sketch", place)
        bucket = rng.integers(size, size=step.numel())
        sign = rng.choice([-1.0, 1.0], size=step.numel())
        np.add.at(sketch, bucket, sign * step.numpy().ravel())
    return sketch

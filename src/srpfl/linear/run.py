"""A run of Algorithm 2 on the core's round loop, with the core's policies and clocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from srpfl.algorithms.base import Answered
from srpfl.clock import Clock, Work
from srpfl.core.means import weighted_mean
from srpfl.core.slots import Slots
from srpfl.core.split import Params
from srpfl.errors import ConfigError
from srpfl.linear.algorithm import distance, head_spread, method_of_moments, orthonormal, updates
from srpfl.linear.problem import Array, Problem
from srpfl.loop.rounds import Arrival, Request, initial_state, play
from srpfl.participation import Answer, Call, Participation

FLOOR_ROUNDS = 50  # the floor of a run is its mean distance over the last so many rounds


@dataclass(frozen=True)
class LinearRun:
    """What came of a run, round by round."""

    initial_distance: float
    distance: Array  # to B*, after each round
    computing: Array  # time at the end of each round, without communication
    participants: tuple[int, ...]  # n of each round
    sigma_min: float  # extremes over the participants of the rounds that were played; the
    sigma_max: float  # theory's, over all subsets of at least n0 clients, nobody can compute

    @property
    def floor(self) -> float:
        """The distance at which the noise holds the run: the mean of the last 50 rounds."""
        return float(self.distance[-FLOOR_ROUNDS:].mean())

    def time(self, communication: float = 0.0) -> Array:
        """The time at the end of each round, for any C."""
        return self.computing + communication * np.arange(1, len(self.computing) + 1)

    def time_to(self, target: float, communication: float = 0.0) -> float | None:
        """When the distance is first at or below the target; None if it never is."""
        if self.initial_distance <= target:
            return 0.0
        reached = np.flatnonzero(self.distance <= target)
        return float(self.time(communication)[reached[0]]) if len(reached) else None


def run(
    problem: Problem,
    *,
    participation: Participation,
    clock: Clock,
    eta: float,
    rounds: int,
    initial: Array | None = None,
    after_round: Callable[[], None] = lambda: None,
) -> LinearRun:
    """Play Algorithm 2. The method of moments gives the initial B where none is given.

    >>> from srpfl.clock import IIDExponential
    >>> from srpfl.participation import Doubling
    >>> answer = run(
    ...     Problem(clients=16, dim=5, rank=2, samples=10, noise=0.1),
    ...     participation=Doubling(start=4, every=10), clock=IIDExponential(), eta=0.1, rounds=40,
    ... )
    >>> answer.participants[::10], answer.floor < answer.initial_distance
    ((4, 8, 16, 16), True)
    """
    if rounds < 1:
        raise ConfigError(f"rounds must be at least 1, not {rounds}")
    server = LinearFedRep(eta=eta)
    clients = LinearClients(problem, clock, eta)
    b = method_of_moments(problem) if initial is None else orthonormal(initial)
    state = initial_state({"B": torch.from_numpy(b)}, participation, problem.clients)
    distances, computing, participants, spreads = [], [], [], []
    for _ in range(rounds):
        state, record = play(
            state,
            algorithm=server,
            participation=participation,
            transport=clients,
            seed=problem.seed,
        )
        distances.append(distance(problem.representation, state.shared["B"].numpy()))
        computing.append(record.computing)
        participants.append(len(record.participants))
        spreads.append(head_spread(problem.heads[record.participants]))
        after_round()
    return LinearRun(
        initial_distance=distance(problem.representation, b),
        distance=np.array(distances),
        computing=np.array(computing),
        participants=tuple(participants),
        sigma_min=min(low for low, _ in spreads),
        sigma_max=max(high for _, high in spreads),
    )


@dataclass(frozen=True, kw_only=True)
class LinearFedRep:
    """The server of Algorithm 2: average, then the Q of a QR (lines 13 and 14)."""

    eta: float

    wants_gradient: ClassVar[bool] = False
    wire: ClassVar[str] = "full"
    hides: ClassVar[None] = None

    def __post_init__(self) -> None:
        if not (self.eta > 0 and math.isfinite(self.eta)):
            raise ConfigError(f"eta must be a positive number, not {self.eta}")

    def sends(self, server: Slots) -> Slots:
        return {}

    def update(
        self, sent: Params, server: Slots, answers: Sequence[Answered], population: int
    ) -> tuple[Params, Slots]:
        mean = weighted_mean([answer.shared for answer in answers], [1.0] * len(answers))["B"]
        return {"B": torch.from_numpy(orthonormal(mean.numpy()))}, server


class LinearClients:
    """The clients of a problem, answering when the clock says so: a transport of the round loop.

    A head is solved for again in every round, so clients keep nothing and only the participants
    cost anything.
    """

    def __init__(self, problem: Problem, clock: Clock, eta: float) -> None:
        self.problem, self.clock, self.eta = problem, clock, eta

    @property
    def population(self) -> int:
        return self.problem.clients

    @property
    def communication(self) -> float:
        return self.clock.communication

    def idle(self, call: Call, now: float = 0.0, *, wait: bool = True) -> Sequence[int]:
        return range(self.problem.clients)

    def send(self, request: Request) -> Iterator[Arrival]:
        asked = np.asarray(request.asked, dtype=np.int64)
        samples = np.full(len(asked), self.problem.samples)
        moved = request.shared["B"].nbytes
        work = Work(steps=np.ones_like(samples), samples=samples, down=moved, up=moved)
        times = self.clock.times(self.problem.seed, request.round, asked, self.population, work)
        for place in np.argsort(times, kind="stable"):
            yield Arrival(int(asked[place]), float(times[place]))

    def collect(self, request: Request, counted: Sequence[Arrival]) -> list[Answer]:
        clients = np.array([arrival.client for arrival in counted])
        b = request.shared["B"].numpy()
        updated, losses = updates(self.problem, request.round, clients, b, self.eta)
        return [
            Answer(arrival.client, arrival.time, {"B": answer}, loss, self.problem.samples)
            for arrival, answer, loss in zip(
                counted, torch.from_numpy(updated).unbind(), losses.tolist(), strict=True
            )
        ]

    def settle(self, answers: Sequence[Answer]) -> None:
        """Nothing to keep."""

    def missed(self, request: Request, counted: Sequence[Arrival]) -> list[Arrival]:
        """Nobody reads who was late here, and a list of 100,000 of them a round is not free."""
        return []

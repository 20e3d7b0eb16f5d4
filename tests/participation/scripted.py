"""Clients that do sums instead of training, so that whole runs can be worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

import srpfl
import tiny
from srpfl.clock import Work
from srpfl.core.slots import Reply
from srpfl.core.split import Params
from srpfl.engine.base import Job, Local
from srpfl.loop.population import VirtualTransport
from srpfl.loop.rounds import initial_state, play
from srpfl.runs.records import RoundRecord
from srpfl.runs.state import ClientParts, State


class Sums:
    """y = 0.9·x + client + 1, whatever the data; what a client keeps counts its answers."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[int, tuple[int, ...]]]] = []  # (version, clients) of each job

    def train(self, jobs: Sequence[Job]) -> list[list[Local]]:
        self.calls.append([(job.round, tuple(job.clients)) for job in jobs])
        return [
            [
                Local(client, Reply(worked(job.shared, client), {"n": kept["n"] + 1}), 1.0, 10)
                for client, kept in zip(job.clients, job.personal, strict=True)
            ]
            for job in jobs
        ]


def worked(shared: Params, client: int) -> Params:
    return {"x": 0.9 * shared["x"] + (client + 1)}


@dataclass(frozen=True)
class Given:
    """A clock with a time for each client and, for some, a stay in every period."""

    seconds: tuple[float, ...]
    communication: float = 0.0
    fixed: ClassVar[bool] = True

    def times(self, seed: int, round: int, clients: Any, population: int, work: Work) -> Any:
        return np.array(self.seconds)[clients] * work.share


@dataclass(frozen=True)
class Leaving(Given):
    """Client i is there from the beginning of each of its periods for so long."""

    periods: tuple[float, ...] = ()
    stay: tuple[float, ...] = field(default=())

    def stays(self, seed: int, clients: Any, population: int, time: float) -> Any:
        period, stay = np.array(self.periods)[clients], np.array(self.stay)[clients]
        begin = np.floor(time / period) * period
        begin = np.where(begin + stay > time, begin, begin + period)
        return begin, begin + stay


class World:
    """A run that goes on round by round, and can begin again from any state."""

    def __init__(
        self, participation: Any, clock: Any, algorithm: Any = None, clients: int | None = None
    ) -> None:
        self.participation, self.clock = participation, clock
        self.algorithm = algorithm or srpfl.FedAvg()
        self.population = clients or len(clock.seconds)
        self.data = tiny.data(clients=self.population, per_client=10)
        self.parts = ClientParts({"n": torch.zeros((), dtype=torch.float64)})
        self.records: list[RoundRecord] = []
        self.engine = Sums()
        shared = {"x": torch.tensor([1.0], dtype=torch.float64)}
        self.state = initial_state(shared, participation, self.population)
        self.restart()

    def restart(self) -> None:
        """As a new process would: nothing but the state and the parts is left."""
        self.transport = VirtualTransport(
            data=self.data,
            engine=self.engine,  # type: ignore[arg-type]
            clock=self.clock,
            plans=self.algorithm.plans(tiny.model()),
            parts=self.parts,
            seed=0,
        )

    def play(self, rounds: int = 1) -> State:
        for _ in range(rounds):
            self.state, record = play(
                self.state,
                algorithm=self.algorithm,
                participation=self.participation,
                transport=self.transport,
                seed=0,
            )
            self.records.append(record)
        return self.state

    @property
    def x(self) -> float:
        return float(self.state.shared["x"])


def lowest_first(policy: type) -> Any:
    """The policy, asking idle clients by their number."""

    class LowestFirst(policy):  # type: ignore[misc]
        def choose(self, memory: Any, call: Any, idle: Any, rng: Any) -> tuple[int, ...]:
            return tuple(sorted(idle)[: call.ask])

    return LowestFirst


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12)

"""The simulated clients: their personal parts, and a transport with a virtual clock.

Only participants are trained. An answer that comes too late is dropped, so computing it would be
waste; the record still says when it would have come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from srpfl.algorithms.base import weighted_mean
from srpfl.clock.base import Clock, Work
from srpfl.data.base import Federated
from srpfl.engine.base import Engine, Job, Local
from srpfl.errors import DataError
from srpfl.local import Plan
from srpfl.participation.base import Call
from srpfl.rounds import Answer, Arrival, Request
from srpfl.split import Params


class PersonalParts:
    """Each client's personal part. Whoever has never taken part has the initial one, so memory
    grows with the participants and not with the population."""

    def __init__(self, initial: Params) -> None:
        self.initial = initial
        self.trained: dict[int, Params] = {}
        self.unsaved: set[int] = set()  # changed since the last checkpoint

    def of(self, client: int) -> Params:
        return self.trained.get(client, self.initial)

    def put(self, client: int, part: Params) -> None:
        self.trained[client] = part
        self.unsaved.add(client)

    def mean(self, clients: Sequence[int]) -> Params:
        """The mean over some clients, or the initial part where there are none."""
        if not clients or not self.initial:
            return self.initial
        return weighted_mean([self.of(client) for client in sorted(clients)], [1.0] * len(clients))


class VirtualTransport:
    """Clients that answer when the clock says so."""

    def __init__(
        self,
        *,
        data: Federated,
        engine: Engine,
        clock: Clock,
        plan: Plan,
        parts: PersonalParts,
        seed: int,
    ) -> None:
        self.data, self.engine, self.clock, self.plan = data, engine, clock, plan
        self.parts, self.seed = parts, seed
        self._pending: dict[int, Local] = {}
        self._order: list[Arrival] = []

    @property
    def population(self) -> int:
        return self.data.clients

    @property
    def communication(self) -> float:
        return self.clock.communication

    def idle(self, call: Call) -> Sequence[int]:
        return range(self.data.clients)  # a simulated client drops its work when nobody waits

    def send(self, request: Request) -> Iterator[Arrival]:
        self._order = self._arrivals(request)
        return iter(self._order)

    def collect(self, request: Request, counted: Sequence[Arrival]) -> list[Answer]:
        clients = [arrival.client for arrival in counted]
        job = Job(
            seed=self.seed,
            round=request.round,
            purpose="train",
            clients=clients,
            shared=request.shared,
            personal=[self.parts.of(client) for client in clients],
            plan=self.plan,
            wants_gradient=request.wants_gradient,
        )
        self._pending = {local.client: local for local in self.engine.train(job)}
        return [self._answer(arrival) for arrival in counted]

    def settle(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            self.parts.put(answer.client, self._pending[answer.client].personal)
        self._pending = {}

    def missed(self, request: Request, counted: Sequence[Arrival]) -> list[Arrival]:
        return self._order[len(counted) :]

    def _answer(self, arrival: Arrival) -> Answer:
        local = self._pending[arrival.client]
        return Answer(
            arrival.client, arrival.time, local.shared, local.loss, local.samples, local.gradient
        )

    def _arrivals(self, request: Request) -> list[Arrival]:
        """Everyone who was asked, in order of arrival; ties go to the lower number."""
        asked = np.asarray(request.asked, dtype=np.int64)
        work = self._work(request)
        times = self.clock.times(self.seed, request.round, asked, self.population, work)
        order = np.argsort(times, kind="stable")
        return [Arrival(int(asked[place]), float(times[place])) for place in order]

    def _work(self, request: Request) -> Work:
        sizes = [self.data.size(client) for client in request.asked]
        if 0 in sizes:
            raise DataError(f"client {request.asked[sizes.index(0)]} has no training data")
        steps = np.array([self.plan.step_count(size) for size in sizes], dtype=np.int64)
        samples = np.array([self.plan.sample_count(size) for size in sizes], dtype=np.int64)
        moved = sum(value.numel() * value.element_size() for value in request.shared.values())
        return Work(steps, samples, down=moved, up=moved)

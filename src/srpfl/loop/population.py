"""The simulated clients: a transport with a virtual clock.

Where late answers are dropped, only participants are trained: computing the others would be waste,
and the record still says when they would have come. Where they are kept, all that are at work are
trained, and an answer waits for its time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from srpfl.clock.base import Clock, ComesAndGoes, FloatArray, IntArray, Work
from srpfl.clock.checks import communication_of, stays_of, times_of
from srpfl.core.means import Weighting
from srpfl.core.plan import Plan, cut
from srpfl.core.slots import packed, unpacked
from srpfl.core.split import Params
from srpfl.data.base import Federated
from srpfl.engine.base import Engine, Finishes, Job, Local
from srpfl.errors import DataError
from srpfl.loop.costs import Costs
from srpfl.loop.transport import Arrival, NoAnswerError, Request
from srpfl.participation.base import Answer, Call
from srpfl.runs.state import ClientParts, Flight

SIZES = 100_000  # clients whose sizes are remembered


class VirtualTransport:
    """Clients that answer when the clock says so."""

    def __init__(
        self,
        *,
        data: Federated,
        engine: Engine,
        clock: Clock,
        plans: tuple[Plan, ...],
        parts: ClientParts,
        seed: int,
        finisher: Finishes | None = None,
        costs: Costs | None = None,
        mean_by: Weighting | None = None,
    ) -> None:
        self.data, self.engine, self.clock, self.plans = data, engine, clock, plans
        self.finisher, self.costs = finisher, costs or Costs()
        self.parts, self.seed, self.mean_by = parts, seed, mean_by
        # By client, with the version it began from: computed, and not settled yet.
        self._done: dict[int, tuple[int, Local]] = {}
        self._waited = 0.0  # until somebody could be asked
        self._order: list[Arrival] = []
        self._sizes: dict[int, int] = {}  # of clients that were asked
        self._keep_slots = bool(unpacked(parts.initial)[1])

    @property
    def population(self) -> int:
        return self.data.clients

    @property
    def communication(self) -> float:
        return communication_of(self.clock)

    def idle(self, call: Call, now: float = 0.0, *, wait: bool = True) -> Sequence[int]:
        """Who can be reached: a simulated client drops its work when nobody waits for it. If there
        is nobody, the round waits for the first who comes."""
        self._waited = 0.0
        # Clients that are always there need no list: there may be millions of them.
        everyone = np.arange(self.population if isinstance(self.clock, ComesAndGoes) else 0)
        stays = stays_of(self.clock, self.seed, everyone, self.population, now)
        if stays is None:
            return range(self.population)
        comes = stays[0].min()
        if comes > now and wait and comes < math.inf:
            self._waited, now = comes - now, comes
        found: list[int] = everyone[stays[0] <= now].tolist()
        if wait and not found:
            raise NoAnswerError(
                f"the clock {type(self.clock).__name__} says that no client can be reached any more"
            )
        return found

    def send(self, request: Request) -> Iterator[Arrival]:
        self._order = self._arrivals(request)
        return iter(self._order)

    def collect(self, request: Request, counted: Sequence[Arrival]) -> list[Answer]:
        work = [Flight(a.client, request.round, 0.0, a.time, a.part) for a in counted]
        sent = {request.round: packed(request.shared, request.server)}
        self._train(work, sent, wants_gradient=request.wants_gradient, mean_by=self.mean_by)
        return [self._answer(flight, request.round) for flight in work]

    def settle(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            reply = self._done.pop(answer.client)[1].reply
            self.parts.put(answer.client, reply.personal, reply.own)

    def missed(self, request: Request, counted: Sequence[Arrival]) -> list[Arrival]:
        done, heard = {a.client for a in counted}, {a.client for a in self._order}
        never = [client for client in request.asked if client not in heard]
        late = [arrival for arrival in self._order if arrival.client not in done]
        return [*late, *(Arrival(client, math.inf, lost=True) for client in never)]

    def aloft(self, flights: Sequence[Flight]) -> Sequence[Flight]:
        return flights

    def launch(self, request: Request) -> Sequence[Flight]:
        parts = np.array(request.parts or [1.0] * len(request.asked))
        start = request.now + self._waited
        moving, computing, ends = self._times(request)
        times = moving + parts * computing + self.communication
        # Who takes for ever is not waited for: its place is given to another.
        return [
            Flight(client, request.round, start, start + min(time, end), part, time > end)
            for client, part, time, end in zip(
                request.asked, parts.tolist(), times.tolist(), ends.tolist(), strict=True
            )
            if min(time, end) < math.inf
        ]

    def next(
        self,
        flights: Sequence[Flight],
        now: float,
        until: float,
        busy: Callable[[int], bool] | None,
    ) -> Flight | float | None:
        """In order of time; ties go to flights, and to the lower number."""
        comes = math.inf if busy is None else self._comes(busy, now)
        soonest = min(flights, key=lambda flight: (flight.due, flight.client), default=None)
        if soonest is not None and soonest.due < math.inf and soonest.due <= min(until, comes):
            return soonest
        return comes if comes < math.inf and comes <= until else None

    def _comes(self, busy: Callable[[int], bool], now: float) -> float:
        """When the next client comes who is not busy; infinity where nobody will."""
        if not isinstance(self.clock, ComesAndGoes):
            return math.inf
        others = np.array([each for each in range(self.population) if not busy(each)], dtype=int)
        stays = stays_of(self.clock, self.seed, others, self.population, now)
        assert stays is not None
        return float(stays[0][stays[0] > now].min(initial=math.inf))

    def bring(
        self,
        landed: Sequence[Flight],
        aloft: Sequence[Flight],
        versions: Mapping[int, Params],
        request: Request,
    ) -> list[Answer]:
        """What a flight brings was settled when it began: neither the version that it was sent nor
        what its client keeps changes on the way. So whenever an answer is needed that is not there
        yet, those of all who are at work are computed with it, as one cohort, and wait here for
        their time. Their order is that of their landing. What was computed for a flight that was
        dropped since then belongs to an older version, and is replaced."""
        if not all(self._ready(flight) for flight in landed):
            ahead = [each for each in aloft if not each.lost and each.due < math.inf]
            missing = [each for each in (*landed, *ahead) if not self._ready(each)]
            self._train(missing, versions, wants_gradient=request.wants_gradient)
        return [self._answer(flight, request.round) for flight in landed]

    def _train(
        self,
        work: Sequence[Flight],
        versions: Mapping[int, Params],
        *,
        wants_gradient: bool,
        mean_by: Weighting | None = None,
    ) -> None:
        """One job for each version and amount of work, all of them at once."""
        together: dict[tuple[int, float, int], list[int]] = {}
        for flight in work:
            # A part of the work is some number of steps, and that goes by the samples there are.
            size = 0 if flight.part >= 1 else int(self._sizes_of([flight.client])[0])
            together.setdefault((flight.version, flight.part, size), []).append(flight.client)
        jobs = []
        for (version, part, size), clients in together.items():
            kept = [self.parts.kept(client) for client in clients]
            both = [unpacked(each) for each in kept] if self._keep_slots else []
            shared, server = unpacked(versions[version])
            jobs.append(
                Job(
                    seed=self.seed,
                    round=version,
                    purpose="train",
                    clients=clients,
                    shared=shared,
                    personal=[personal for personal, _ in both] or kept,
                    plans=cut(self.plans, size, part) if size else self.plans,
                    server=server,
                    own=[slots for _, slots in both],
                    wants_gradient=wants_gradient,
                    finisher=self.finisher,
                    mean_by=mean_by,
                )
            )
        for job, locals_ in zip(jobs, self.engine.train(jobs), strict=True):
            self._done |= {local.client: (job.round, local) for local in locals_}

    def _ready(self, flight: Flight) -> bool:
        return flight.client in self._done and self._done[flight.client][0] == flight.version

    def _answer(self, flight: Flight, round: int) -> Answer:
        _, local = self._done[flight.client]
        reply, time = local.reply, flight.due - flight.began
        age, part = round - flight.version, flight.part
        return Answer(
            flight.client, time, reply.shared, local.loss, local.samples, reply.sent, age, part
        )

    def _arrivals(self, request: Request) -> list[Arrival]:
        """Everyone who answers or leaves, in order of time; ties go to the lower number."""
        call, asked, parts = request.call, request.asked, np.ones(len(request.asked))
        moving, computing, ends = self._times(request)
        times = moving + computing
        if call.partial and call.deadline is not None:
            # Work is written down in tenths; who has not come that far goes on.
            allowed = call.deadline - self._waited
            done = np.floor(10 * (allowed - moving) / np.maximum(computing, 1e-300) + 1e-9) / 10
            short = (times > allowed) & (done > 0)
            parts[short], times[short] = done[short], allowed
        lost, times = times > ends, self._waited + np.minimum(times, ends)
        order = np.argsort(times, kind="stable")
        # A client that takes for ever is never heard.
        order = order[: np.count_nonzero(np.isfinite(times))]
        if not len(order):
            raise NoAnswerError(
                f"the clock {type(self.clock).__name__} says that none of the {len(asked)} clients "
                f"asked in round {request.round + 1} ever answers: ask more of them, or set a "
                "deadline after which others are asked",
                call.deadline,
            )
        return [
            Arrival(asked[place], float(times[place]), float(parts[place]), bool(lost[place]))
            for place in order.tolist()
        ]

    def _times(self, request: Request) -> tuple[FloatArray, FloatArray, FloatArray]:
        """How long the messages of each of those asked take, how long its computing takes, and
        after how long it leaves."""
        asked, start = np.asarray(request.asked, dtype=np.int64), request.now + self._waited
        where = (self.clock, self.seed, request.round, asked, self.population)
        work = self._work(request, start)
        times, moving = times_of(*where, work), np.zeros(len(asked))
        if request.parts or request.call.partial:  # who does a part of the work moves all bytes
            # Who never answers has no part of its work done either.
            never = times == math.inf
            moving = np.where(never, 0.0, times_of(*where, replace(work, share=0.0)))
        stays = stays_of(self.clock, self.seed, asked, self.population, start)
        ends = np.full(len(asked), math.inf) if stays is None else stays[1] - start
        return moving, times - moving, ends

    def _work(self, request: Request, start: float) -> Work:
        sizes, each = np.unique(self._sizes_of(request.asked), return_inverse=True)
        if sizes[0] <= 0:
            client = request.asked[int(np.argmin(each))]
            raise DataError(f"client {client} has no training data")
        # Clients of one size have as much to do, and there are fewer sizes than clients.
        steps = [sum(plan.step_count(size) for plan in self.plans) for size in sizes.tolist()]
        samples = [sum(plan.sample_count(size) for plan in self.plans) for size in sizes.tolist()]
        work = self.costs.work(request, np.array(steps)[each], np.array(samples)[each])
        at_work = request.call.ask if request.call.late == "keep" else 0
        return replace(work, asked=at_work, start=start)

    def _sizes_of(self, clients: Sequence[int]) -> IntArray:
        known = self._sizes
        if len(known) > SIZES:
            known.clear()
        for client in clients:
            if client not in known:
                known[client] = self.data.size(client)
        return np.array([known[client] for client in clients], dtype=np.int64)

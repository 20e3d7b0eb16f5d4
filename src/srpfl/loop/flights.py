"""Rounds that keep late answers: so many clients are at work at any time, and a round goes on as
soon as enough answers have come, from whichever version of the shared part they started.

When an answer comes, another client is asked at once, or as soon as one can be reached. A client
whose answer waits for the round's end is not asked again before it: it would only do the same work
twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from srpfl.core.slots import packed, unpacked
from srpfl.core.split import Params
from srpfl.errors import ConfigError
from srpfl.loop.transport import (
    Arrival,
    Heard,
    KeepingTransport,
    NoAnswerError,
    Request,
    Transport,
    Updates,
    chosen,
    reachable,
    unwired,
    used_up,
)
from srpfl.loop.uncorrected import wants_gradient
from srpfl.participation.base import Answer, Call, Credit, Participation
from srpfl.runs.state import Flight, State

MOST_LOST = 1000  # clients that leave in one round: after that, nobody stays for long enough


def keep(
    state: State,
    call: Call,
    algorithm: Updates,
    participation: Participation,
    transport: Transport,
    seed: int,
) -> Heard:
    """What a round hears whose late answers count in a later one. There is one clock for all here:
    what communication costs is part of each client's own time."""
    if not isinstance(transport, KeepingTransport):
        raise ConfigError(f"{type(participation).__name__} keeps late answers: not possible here")
    sends = algorithm.sends(state.server)
    gradient = wants_gradient(algorithm, participation)
    request = Request(state.round, call, (), state.shared, sends, gradient)
    traffic = Traffic(state, request, participation, transport, seed)
    end = math.inf if call.deadline is None else state.computing + call.deadline
    while not traffic.enough:
        traffic.ask()
        if not traffic.hear(end if traffic.landed else math.inf):
            break
    landed, aloft = traffic.landed, list(traffic.aloft.values())
    if not landed:
        if not reachable(participation, state, range(transport.population)):
            raise used_up(state)
        raise NoAnswerError("nobody who is at work ever answers: wait for fewer, or ask more")
    # Where nobody else lands in time, the round goes on at its deadline.
    over = traffic.now if traffic.enough or end == math.inf else max(end, traffic.now)
    versions = {**state.versions, state.round: packed(state.shared, sends)}
    answers = [
        unwired(algorithm, answer, unpacked(versions[flight.version])[0])
        for answer, flight in zip(
            transport.bring(landed, aloft, versions, request), landed, strict=True
        )
    ]
    needed = {flight.version for flight in aloft}
    return Heard(
        asked=traffic.asked,
        answers=[
            credited(answer, state, versions[flight.version], algorithm, participation)
            for answer, flight in zip(answers, landed, strict=True)
        ],
        duration=over - state.computing,
        communication=transport.communication,
        late=[Arrival(flight.client, flight.due - flight.began) for flight in traffic.dropped],
        lost=traffic.lost,
        end=over,
        flights=tuple(sorted(aloft, key=lambda flight: (flight.due, flight.client))),
        versions={version: part for version, part in versions.items() if version in needed},
    )


class Traffic:
    """Who is asked, lands, is dropped or lost in the course of one round."""

    def __init__(
        self,
        state: State,
        request: Request,
        participation: Participation,
        transport: KeepingTransport,
        seed: int,
    ) -> None:
        self.state, self.request, self.call = state, request, request.call
        self.participation, self.transport, self.seed = participation, transport, seed
        self.now = state.computing
        self.aloft = {flight.client: flight for flight in transport.aloft(state.flights)}
        self.lost = [each.client for each in state.flights if each.client not in self.aloft]
        self.asked: list[int] = []
        self.landed: list[Flight] = []
        self._heard: set[int] = set()  # whose flights these are
        self.dropped: list[Flight] = []
        everyone = range(transport.population)
        left = reachable(participation, state, everyone)
        self._silent = set[int]() if left is everyone else set(everyone).difference(left)
        self._asks = 0

    @property
    def enough(self) -> bool:
        """Whether the round can go on: n answers are there, and nobody at work would be too old in
        the next one."""
        call, after = self.call, self.state.round + 1
        if len(self.landed) < call.wait:
            return False
        return (
            call.max_age is None
            or call.too_old == "drop"
            or not any(after - each.version > call.max_age for each in self.aloft.values())
        )

    @property
    def free(self) -> int:
        """Places for others at work."""
        return self.call.ask - len(self.aloft)

    def busy(self, client: int) -> bool:
        """Whether it is not to be asked now."""
        return client in self.aloft or client in self._heard or client in self._silent

    def ask(self) -> None:
        """Ask others in the place of those who have answered or left."""
        if self.free <= 0:
            return
        alone = not self.aloft and not self.landed
        idle = self.transport.idle(self.call, self.now, wait=alone)
        idle = [client for client in idle if not self.busy(client)]
        if not idle:
            return
        call, again = replace(self.call, ask=self.free), [self._asks] if self._asks else []
        who = chosen(self.participation, self.state, call, idle, self.seed, *again)
        self._asks += 1
        parts = efforts(self.participation, self.state, who)
        request = replace(self.request, asked=who, now=self.now, parts=parts)
        for flight in self.transport.launch(request):
            self.aloft[flight.client] = flight
        self.asked += who
        silent = sorted(set(who) - self.aloft.keys())  # never answer what they were asked now
        self._silent |= set(silent)
        self.lost += silent

    def hear(self, until: float) -> bool:
        """Go on to the next flight that ends by then, or to somebody who comes for a free place
        before it; False if there is neither."""
        if len(self.lost) > MOST_LOST:
            return False
        place = self.busy if self.free > 0 else None
        flight = self.transport.next(list(self.aloft.values()), self.now, until, place)
        if flight is None:
            return False
        if not isinstance(flight, Flight):
            self.now = flight
            return True
        self.now = flight.due
        del self.aloft[flight.client]
        age, oldest = self.state.round - flight.version, self.call.max_age
        if flight.lost:
            self.lost.append(flight.client)
        elif oldest is not None and self.call.too_old == "drop" and age > oldest:
            self.dropped.append(flight)
        else:
            self.landed.append(flight)
            self._heard.add(flight.client)
        return True


def efforts(
    participation: Participation, state: State, clients: Sequence[int]
) -> tuple[float, ...]:
    """Which part of the local work each of the clients is to do; all of it, unless the policy says
    otherwise."""
    given = getattr(participation, "effort", None)
    return tuple(given(state.memory, clients)) if given else ()


def credited(
    answer: Answer,
    state: State,
    origin: Params,
    algorithm: Updates,
    participation: Participation,
) -> Answer:
    """The answer as the server's update is to see it: x + w·(y − x₀), where the client went from x₀
    to y, or x + w·(y − x) where the policy mixes models; w is the policy's credit for its age. A
    model of the client's own did not go from x₀, so it stays whole, and w is told beside it."""
    age = answer.age
    given = getattr(participation, "credit", None)
    credit = given(age) if given else Credit()
    if credit.weight == 1 and (age == 0 or credit.of == "model"):
        return answer
    if not getattr(algorithm, "moves", True):
        return replace(answer, credit=credit.weight)
    start = state.shared if credit.of == "model" else origin
    shared = {
        name: _moved(state.shared[name], start[name], value, credit.weight)
        for name, value in answer.shared.items()
    }
    return replace(answer, shared=shared)


def _moved(
    now: torch.Tensor, start: torch.Tensor, end: torch.Tensor, weight: float
) -> torch.Tensor:
    if not end.is_floating_point():
        return end  # what is counted is not moved by a part
    return torch.add(now.to(end), end - start.to(end), alpha=weight)

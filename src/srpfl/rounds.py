"""One round: call clients, go on with the first answers, average them, remember.

This is the only round loop. A transport carries requests to clients and answers back; the
simulator's has a virtual clock and Flower's has real nodes, and neither can change the rules.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from srpfl.errors import DivergedError, SrpflError
from srpfl.participation.base import Call, Memory, Outcome, Participation
from srpfl.randomness import stream
from srpfl.records import RoundRecord
from srpfl.split import Params


@dataclass(frozen=True)
class State:
    """A server's state between two rounds; all that a run needs to go on."""

    round: int  # rounds finished
    computing: float  # time spent waiting for clients, without communication
    shared: Params
    memory: Memory
    participants: tuple[int, ...] = ()  # of the last round


@dataclass(frozen=True)
class Request:
    """What is sent to the clients that are asked."""

    round: int  # from 0
    call: Call
    asked: tuple[int, ...]
    shared: Params
    wants_gradient: bool


@dataclass(frozen=True)
class Arrival:
    """A client has answered, so long after the request."""

    client: int
    time: float


@dataclass(frozen=True)
class Answer:
    """What a participant sends back. Its personal part is not in it."""

    client: int
    time: float
    shared: Params
    loss: float
    samples: int
    gradient: Params | None = None


class Averages(Protocol):
    """All that a round needs of an algorithm; the rest is the clients' business."""

    def average(self, answers: Sequence[Answer]) -> Params: ...


class Transport(Protocol):
    """The way to the clients and back."""

    @property
    def population(self) -> int:
        """M, the number of clients there are."""
        ...

    @property
    def communication(self) -> float:
        """C, what the round costs beside the clients' computing."""
        ...

    def idle(self, call: Call) -> Sequence[int]:
        """The clients that can be asked now. The round begins here: where clients come and go, a
        transport may wait until there are enough of them for the call."""
        ...

    def send(self, request: Request) -> Iterator[Arrival]:
        """Send the request, then yield answers in order of arrival. The caller may stop at any
        time; with a deadline, the iterator ends there by itself once it has yielded something."""
        ...

    def collect(self, request: Request, counted: Sequence[Arrival]) -> list[Answer]:
        """The answers that count, in the same order."""
        ...

    def settle(self, answers: Sequence[Answer]) -> None:
        """Tell the participants that they count, so that they keep their new personal parts.
        Everyone else keeps the old one."""
        ...

    def missed(self, request: Request, counted: Sequence[Arrival]) -> list[Arrival]:
        """For the record only: answers that came, or would have come, too late."""
        ...


def play(
    state: State,
    *,
    algorithm: Averages,
    participation: Participation,
    transport: Transport,
    seed: int,
) -> tuple[State, RoundRecord]:
    """Play one round and return the state after it, with the round's record."""
    call = participation.call(state.memory, state.round, transport.population)
    asked = sample(transport.idle(call), call, seed)
    request = Request(state.round, call, asked, state.shared, participation.wants_gradient)
    counted, duration = first(transport.send(request), call, transport.communication)
    answers = transport.collect(request, counted)
    shared = algorithm.average(sorted(answers, key=lambda answer: answer.client))
    check_finite(answers, shared, state.round)
    outcome = Outcome(
        state.round, call, asked, answers, duration, transport.communication, state.shared
    )
    memory = participation.learn(state.memory, outcome)
    transport.settle(answers)
    after = State(
        round=state.round + 1,
        computing=state.computing + duration,
        shared=shared,
        memory=memory,
        participants=tuple(answer.client for answer in answers),
    )
    late = transport.missed(request, counted)
    record = RoundRecord(
        round=after.round,
        stage=call.stage,
        wait=call.wait,
        asked=len(asked),
        participants=[answer.client for answer in answers],
        arrivals=[answer.time for answer in answers],
        late=[arrival.client for arrival in late],
        late_arrivals=[arrival.time for arrival in late],
        loss=math.fsum(answer.loss for answer in answers) / len(answers),
        duration=duration,
        computing=after.computing,
        decision=dict(memory.get("account", {})),
    )
    return after, record


def sample(idle: Sequence[int], call: Call, seed: int) -> tuple[int, ...]:
    """The clients to ask: a random sample without replacement, in ascending order."""
    if call.ask >= len(idle):
        return tuple(idle)
    places = stream(seed, "sample", call.draw).choice(len(idle), size=call.ask, replace=False)
    return tuple(idle[place] for place in np.sort(places))


def first(
    arrivals: Iterator[Arrival], call: Call, communication: float = 0.0
) -> tuple[list[Arrival], float]:
    """The answers that count and the time at which the round goes on.

    >>> some = [Arrival(7, 0.5), Arrival(3, 1.0), Arrival(9, 4.0)]
    >>> first(iter(some), Call(ask=3, wait=2))
    ([Arrival(client=7, time=0.5), Arrival(client=3, time=1.0)], 1.0)
    >>> first(iter(some), Call(ask=3, wait=3, deadline=2.0))
    ([Arrival(client=7, time=0.5), Arrival(client=3, time=1.0)], 2.0)
    >>> first(iter(some), Call(ask=3, wait=1, grace=0.1), communication=5.0)
    ([Arrival(client=7, time=0.5), Arrival(client=3, time=1.0)], 1.05)
    """
    counted: list[Arrival] = []
    end = math.inf if call.deadline is None else call.deadline
    for arrival in arrivals:
        if counted and arrival.time > end:
            return counted, end
        counted.append(arrival)
        if len(counted) == call.wait and call.grace:
            end = min(end, call.end(arrival.time, communication))
        elif len(counted) == call.wait or arrival.time > end:
            return counted, arrival.time
    if not counted:
        raise NoAnswerError("no client answered")
    # The answers ended early: because everyone has answered, or at the end of the time for it.
    everyone = len(counted) == call.ask or end == math.inf
    return counted, counted[-1].time if everyone else end


class NoAnswerError(SrpflError):
    """A round without a single usable answer."""


def check_finite(answers: Sequence[Answer], average: Params, round: int) -> None:
    """Refuse to go on from a loss or a model that is not a number.

    One bad answer spoils the average, so the answers are looked through only if that happened.
    """
    if all(math.isfinite(answer.loss) for answer in answers) and _finite(average):
        return
    for answer in answers:
        broken = not math.isfinite(answer.loss)
        if broken or not _finite(answer.shared):
            what = f"loss {answer.loss}" if broken else "weights that are not finite"
            raise DivergedError(
                f"client {answer.client} came to {what} in round {round + 1}: lower the learning "
                "rate; the rounds before it are kept"
            )
    raise DivergedError(f"the average of round {round + 1} overflows: lower the learning rate")


def _finite(part: Params) -> bool:
    return all(bool(value.isfinite().all()) for value in part.values())


def initial_state(shared: Params, participation: Participation, population: int) -> State:
    """The state before the first round."""
    return State(0, 0.0, shared, participation.begin(population))

"""One round: call clients, continue with the first answers, average them, remember.

This is the only round loop. A transport carries requests to clients and answers back; the
simulator's has a virtual clock and Flower's has real nodes, and neither can change the rules.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from srpfl.algorithms.sealed import sealed, shown
from srpfl.core.slots import Slots
from srpfl.core.split import Params
from srpfl.errors import ConfigError, DivergedError
from srpfl.loop.flights import keep
from srpfl.loop.transport import (
    Arrival,
    Heard,
    NoAnswerError,
    Request,
    Transport,
    Updates,
    chosen,
    reachable,
    unwired,
    used_up,
)
from srpfl.loop.uncorrected import hides_differences, uncorrected, wants_gradient
from srpfl.participation.base import Answer, Call, Outcome, Participation
from srpfl.runs.records import RoundRecord
from srpfl.runs.state import State

__all__ = ["Arrival", "NoAnswerError", "Request", "Transport", "Updates", "initial_state", "play"]

EXPLODED = 1e30  # a loss from which no training comes back
TRIES = 1000  # of a round: after that, nobody stays for long enough to answer
LATE = 10_000  # late answers that a record lists, the earliest; `asked` counts them all


def play(
    state: State,
    *,
    algorithm: Updates,
    participation: Participation,
    transport: Transport,
    seed: int,
) -> tuple[State, RoundRecord]:
    """Play one round and return the state after it, with the round's record."""
    call = participation.call(state.memory, state.round, transport.population)
    call = hidden(algorithm, participation, call)
    hear = keep if call.late == "keep" else drop
    heard = hear(state, call, algorithm, participation, transport, seed)
    answers, duration = heard.answers, heard.duration
    shared, server = updated(algorithm, state, answers, transport.population)
    check_finite(answers, shared, state.round)
    seen = visible(algorithm, participation, state.shared, shared, answers)
    outcome = Outcome(
        state.round, call, heard.asked, seen, duration, heard.communication, state.shared
    )
    memory = participation.learn(state.memory, outcome)
    transport.settle(answers)
    after = State(
        round=state.round + 1,
        computing=state.computing + duration if heard.end is None else heard.end,
        shared=shared,
        memory=memory,
        participants=tuple(answer.client for answer in answers),
        server=server,
        flights=heard.flights,
        versions=heard.versions,
    )
    record = RoundRecord(
        round=after.round,
        stage=int(call.stage),
        wait=int(call.wait),
        asked=len(heard.asked),
        participants=[answer.client for answer in answers],
        arrivals=[answer.time for answer in answers],
        late=[arrival.client for arrival in heard.late[:LATE]],
        late_arrivals=[arrival.time for arrival in heard.late[:LATE]],
        loss=math.fsum(answer.loss for answer in answers) / len(answers),
        duration=duration,
        computing=after.computing,
        decision=dict(memory.get("account", {})),
        ages=[answer.age for answer in answers] if call.late == "keep" else [],
        lost=list(heard.lost),
    )
    return after, record


def hidden(algorithm: Updates, participation: Participation, call: Call) -> Call:
    """The call as what hides the answers allows it: masks bear only so many late ones."""
    most = None if algorithm.hides is None else algorithm.hides.most(call.wait)
    if most is None:
        return call
    if wants_gradient(algorithm, participation):
        raise ConfigError("gradients of single clients are wanted, which secure sums do not show")
    if call.late == "keep" or call.partial or call.deadline is not None or call.grace:
        raise ConfigError(
            "masks are for one round and all of its work: secure sums need a policy that waits for "
            "a number of answers and drops late ones, such as Doubling"
        )
    return replace(call, ask=min(call.ask, most))


def drop(
    state: State,
    call: Call,
    algorithm: Updates,
    participation: Participation,
    transport: Transport,
    seed: int,
) -> Heard:
    """A round whose late answers are dropped: all are asked at its beginning, and the work of
    those who are not ready at its end is lost. Where all of them leave, others are asked."""
    communication = transport.communication
    gradient = wants_gradient(algorithm, participation)
    began = state.computing + state.round * communication
    server = algorithm.sends(state.server)
    passed, tried = 0.0, list[int]()
    for again in range(TRIES):
        now = began + passed
        idle = reachable(participation, state, transport.idle(call, now))
        if not idle:
            raise used_up(state)
        asked = chosen(participation, state, call, idle, seed, *([again] if again else []))
        request = Request(state.round, call, asked, state.shared, server, gradient, now)
        try:
            arrivals = transport.send(request)
            counted, duration = first(arrivals, replace(call, ask=len(asked)), communication)
        except NoAnswerError as error:
            if error.after is None or again + 1 == TRIES:
                raise
            passed += error.after
            tried += asked
            continue
        break
    missed = transport.missed(request, counted)
    return Heard(
        asked=(*tried, *asked),
        answers=[
            unwired(algorithm, answer, state.shared)
            for answer in transport.collect(request, counted)
        ],
        duration=passed + duration,
        communication=communication,
        late=[arrival for arrival in missed if not arrival.lost],
        lost=[*tried, *(arrival.client for arrival in missed if arrival.lost)],
    )


def updated(
    algorithm: Updates, state: State, answers: Sequence[Answer], population: int
) -> tuple[Params, Slots]:
    """The server's update, where the answers are: on the engine's device."""
    ordered = sorted(answers, key=lambda answer: answer.client)
    device = next((value.device for value in ordered[0].shared.values()), None)
    sent = {name: value.to(device) for name, value in state.shared.items()}
    server = {
        slot: {name: value.to(device) for name, value in part.items()}
        for slot, part in state.server.items()
    }
    given = ordered if algorithm.hides is None else sealed(ordered)
    return algorithm.update(sent, server, given, population)


def visible(
    algorithm: Updates,
    participation: Participation,
    sent: Params,
    after: Params,
    answers: Sequence[Answer],
) -> Sequence[Answer]:
    """What the policy sees: the answers, without what makes them agree where it compares them; in a
    private run only what everyone will know."""
    hides = algorithm.hides
    if hides is None:
        corrected = hides_differences(algorithm, participation)
        return uncorrected(sent, answers) if corrected else answers
    return shown(answers, sent, after, hides.spread(sent, len(answers)))


def first(
    arrivals: Iterator[Arrival], call: Call, communication: float = 0.0
) -> tuple[list[Arrival], float]:
    """The answers that count and the time at which the round ends.

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
    left = 0.0
    for arrival in arrivals:
        if arrival.lost:
            left = arrival.time
            continue
        if counted and arrival.time > end:
            return counted, end
        counted.append(arrival)
        if len(counted) == call.wait and call.grace:
            end = min(end, call.end(arrival.time, communication))
        elif len(counted) == call.wait or arrival.time > end:
            return counted, arrival.time
    if not counted:
        raise NoAnswerError("no client answered", left or None)
    # The answers ended early: because everyone has answered, or at the end of the time for it. Who
    # has left is waited for until then.
    everyone = len(counted) == call.ask or end == math.inf
    return counted, max(counted[-1].time, min(left, end)) if everyone else end


def check_finite(answers: Sequence[Answer], average: Params, round: int) -> None:
    """Refuse to continue from a loss or a model that is not a number, or hardly one any more.

    One bad answer spoils the average, so the answers are looked through only if that happened.
    """
    if all(-EXPLODED <= answer.loss <= EXPLODED for answer in answers) and _finite(average):
        return
    for answer in answers:
        broken = not -EXPLODED <= answer.loss <= EXPLODED
        if broken or not _finite(answer.shared):
            what = f"loss {answer.loss:g}" if broken else "weights that are not finite"
            raise DivergedError(
                f"training diverged: client {answer.client} has {what} in round {round + 1}: "
                "lower the learning rate; the rounds before it are kept"
            )
    raise DivergedError(f"the average of round {round + 1} overflows: lower the learning rate")


def _finite(part: Params) -> bool:
    return all(bool(value.isfinite().all()) for value in part.values())


def initial_state(
    shared: Params, participation: Participation, population: int, server: Slots | None = None
) -> State:
    """The state before the first round."""
    return State(0, 0.0, shared, participation.begin(population), server=server or {})

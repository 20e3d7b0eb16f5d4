"""The way to the clients and back, as the round loop sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from srpfl.algorithms.base import Answered
from srpfl.algorithms.private import Private
from srpfl.algorithms.summed import Secure
from srpfl.core.randomness import stream
from srpfl.core.slots import Slots
from srpfl.core.split import Params
from srpfl.core.wire import SLOT, wire_of
from srpfl.errors import ConfigError, SrpflError
from srpfl.participation.base import Answer, Call, Participation
from srpfl.runs.state import Flight, State


@dataclass(frozen=True)
class Request:
    """What is sent to the clients that are asked."""

    round: int  # from 0
    call: Call
    asked: tuple[int, ...]
    shared: Params
    server: Slots  # what the algorithm sends beside it
    wants_gradient: bool
    now: float = 0.0  # since the run began
    parts: tuple[float, ...] = ()  # of the local work, for each of those asked; none: all of it


@dataclass(frozen=True)
class Arrival:
    """A client has answered, so long after the request."""

    client: int
    time: float
    part: float = field(default=1.0, repr=False)  # of its local work that it has done
    lost: bool = field(default=False, repr=False)  # it has left then, without an answer


@dataclass(frozen=True)
class Heard:
    """What a round heard, before anything is made of it."""

    asked: Sequence[int]
    answers: list[Answer]  # those that count, in order of arrival
    duration: float  # from the round's beginning to its end
    communication: float  # of an exchange: beside the duration, or in it where late answers count
    late: Sequence[Arrival] = ()  # dropped
    lost: Sequence[int] = ()  # left while at work
    end: float | None = None  # on the run's clock, where it is known better than by the duration
    flights: tuple[Flight, ...] = ()  # still at work
    versions: Mapping[int, Params] = field(default_factory=dict)  # what those were sent


class Updates(Protocol):
    """All that a round needs of an algorithm; the rest is the clients' business."""

    @property
    def wants_gradient(self) -> bool: ...

    @property
    def hides(self) -> Private | Secure | None: ...

    @property
    def wire(self) -> str: ...

    def sends(self, server: Slots) -> Slots: ...

    def update(
        self, sent: Params, server: Slots, answers: Sequence[Answered], population: int
    ) -> tuple[Params, Slots]: ...


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

    def idle(self, call: Call, now: float = 0.0, *, wait: bool = True) -> Sequence[int]:
        """The clients that can be asked now. The round begins here: where clients come and go, a
        transport may wait until there are enough of them for the call."""
        ...

    def send(self, request: Request) -> Iterator[Arrival]:
        """Send the request, then yield answers in order of arrival, and who leaves without one. The
        caller may stop at any time; with a deadline, the iterator ends there by itself once it has
        yielded something."""
        ...

    def collect(self, request: Request, counted: Sequence[Arrival]) -> list[Answer]:
        """The answers that count, in the same order."""
        ...

    def settle(self, answers: Sequence[Answer]) -> None:
        """Tell the participants that they count, so that they keep their new personal parts.
        Everyone else keeps the old one."""
        ...

    def missed(self, request: Request, counted: Sequence[Arrival]) -> list[Arrival]:
        """For the record only: answers that came or would have come too late, and who has left."""
        ...


@runtime_checkable
class KeepingTransport(Transport, Protocol):
    """A way to the clients by which late answers come too."""

    def aloft(self, flights: Sequence[Flight]) -> Sequence[Flight]:
        """Of the flights of an earlier round, those that can still come to an end."""
        ...

    def launch(self, request: Request) -> Sequence[Flight]:
        """Send the request; the flights that begin. A client asked here may answer in any later
        round."""
        ...

    def next(
        self,
        flights: Sequence[Flight],
        now: float,
        until: float,
        busy: Callable[[int], bool] | None,
    ) -> Flight | float | None:
        """What happens next, if anything does by that time: one of the flights ends, with the time
        of its end as its due; or, where ``busy`` says that there is a place for others, the time at
        which a client comes who is not busy and could not be asked yet."""
        ...

    def bring(
        self,
        landed: Sequence[Flight],
        aloft: Sequence[Flight],
        versions: Mapping[int, Params],
        request: Request,
    ) -> list[Answer]:
        """The answers of those that have landed, in the same order, with their ages at this
        request. Who is still aloft, and what all of them were sent, may serve to compute ahead."""
        ...


def chosen(
    participation: Participation,
    state: State,
    call: Call,
    idle: Sequence[int],
    seed: int,
    *again: int,
) -> tuple[int, ...]:
    """The clients to ask, as the policy says; ``again`` tells the asks of one round apart."""
    rng = stream(seed, "sample", call.draw, *again)
    asked = tuple(participation.choose(state.memory, call, idle, rng))
    known = idle if isinstance(idle, range) else set(idle)
    if not asked or len(set(asked)) < len(asked) or any(client not in known for client in asked):
        raise ConfigError(
            f"{type(participation).__name__} chose {len(asked)} clients: it must choose at least "
            "one, each once, among those that are idle"
        )
    return asked


def reachable(participation: Participation, state: State, idle: Sequence[int]) -> Sequence[int]:
    """Of those who can be asked, the ones that the policy has not used up."""
    given = getattr(participation, "reachable", None)
    return given(state.memory, idle) if given else idle


def unwired(algorithm: Updates, answer: Answer, origin: Params) -> Answer:
    """The answer with its shared part, however that has travelled from a client that was sent the
    origin."""
    wire = wire_of(algorithm.wire)
    if wire is None:
        return answer
    sent = {slot: part for slot, part in answer.sent.items() if slot != SLOT}
    return replace(answer, shared=wire.open(answer.sent[SLOT], origin), sent=sent)


class NoAnswerError(SrpflError):
    """A round without a single usable answer; ``after`` says when it is over: at its deadline, or
    when the last of those who were asked had left, where that is known."""

    def __init__(self, text: str, after: float | None = None) -> None:
        super().__init__(text)
        self.after = after


def used_up(state: State) -> NoAnswerError:
    """Said where the policy's clients have no budget left."""
    return NoAnswerError(
        f"no client can be asked any more in round {state.round + 1}: the budgets are used up, so "
        "play fewer rounds or raise them"
    )

"""Flower's nodes where late answers are kept: an answer counts in the round in which it comes.

What a node sends after its round is over is not thrown away but waits here for the next look, also
while others are evaluated. After a restart of the server nobody is at work any more: Flower gives
answers to letters of an earlier run to nobody.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from srpfl.core.slots import packed
from srpfl.core.split import Params
from srpfl.flower.checks import absurd, norm
from srpfl.flower.mail import Letter
from srpfl.flower.parcels import Reply
from srpfl.flower.transport import FlowerTransport
from srpfl.flower.wire import TRAIN
from srpfl.loop.transport import Request
from srpfl.participation.base import Answer, Call
from srpfl.runs.state import Flight


@dataclass(frozen=True)
class Errand:
    """A client at work, what it was asked, and when that was by the server's clock."""

    flight: Flight
    request: Request
    since: float


class KeepingFlowerTransport(FlowerTransport):
    """The way to real clients and back, by which late answers come too."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._errands: dict[int, Errand] = {}
        self._back: list[Flight] = []  # answered or left, and not looked at yet
        self._ahead: float | None = None  # the run's clock less the server's
        self._failed: set[int] = set()  # in this round; asked again, they would only fail again
        self._offered: set[int] = set()  # who could be asked when one last looked
        self._seen = -1  # the desk's looks since then
        self.desk.keeps = self._keep

    def idle(self, call: Call, now: float = 0.0, *, wait: bool = True) -> Sequence[int]:
        if call.late == "drop":
            return super().idle(call, now, wait=wait)
        if wait:
            found = super().idle(replace(call, wait=1), now)
        else:
            self.desk.listen()
            found = sorted(self.desk.idle)
        self._offered = set(found)
        return [client for client in found if client not in self._failed]

    def aloft(self, flights: Sequence[Flight]) -> Sequence[Flight]:
        self._failed = set()
        return [flight for flight in flights if flight.client in self._errands]

    def launch(self, request: Request) -> Sequence[Flight]:
        desk = self.desk
        if self._ahead is None:
            self._ahead = request.now - desk.now()
        desk.round = request.round
        sent = packed(request.shared, request.server)
        wants, parts = request.wants_gradient, request.parts or (1.0,) * len(request.asked)
        given = dict(zip(request.asked, parts, strict=True))
        pieces = self._pieces(request)
        _, reached = desk.post(
            TRAIN, request.asked, request.round, sent, pieces=pieces, gradient=wants, parts=given
        )
        flights = [
            Flight(client, request.round, self._clock(), math.inf, given[client])
            for client in sorted(reached)
        ]
        self._errands |= {each.client: Errand(each, request, desk.now()) for each in flights}
        return flights

    def next(
        self,
        flights: Sequence[Flight],
        now: float,
        until: float,
        busy: Callable[[int], bool] | None,
    ) -> Flight | float | None:
        """In the order in which they came. Where nobody is at work, somebody who can be asked is
        waited for as at the beginning of a round."""
        desk, began = self.desk, self.desk.now()
        while True:
            desk.listen()
            for client in sorted((desk.gone() | desk.mail.overdue()) & self._errands.keys()):
                self._end(client, lost=True)
            if self._back and self._back[0].due <= until:
                flight = self._back.pop(0)
                del self._errands[flight.client]
                return flight
            if busy is not None and self._has_come(busy):
                return self._clock()
            if self._back or self._clock() > until:
                return None
            if not self._errands and (busy is None or not self._may_come(busy, began)):
                return None
            if desk.now() - began > self.patience.round:
                self.events.note("gone on", "no answer for too long", round=desk.round)
                return None
            desk.pause()

    def _has_come(self, busy: Callable[[int], bool]) -> bool:
        """Whether somebody can be asked who could not be when one last looked for idle clients."""
        if self._seen == self.desk.looks:
            return False
        self._seen = self.desk.looks
        return any(not busy(c) for c in self.desk.idle - self._offered - self._failed)

    def _may_come(self, busy: Callable[[int], bool], began: float) -> bool:
        """Whether one should still wait for somebody to ask; else it is said that nobody came."""
        there = self._present()
        if len(there) >= self._expected and all(busy(c) or c in self._failed for c in there):
            return False
        if self.desk.now() - began < self.patience.clients:
            return True
        waited = self.patience.clients
        self._go_on_with_few(f"answers are missing, and nobody else came within {waited:g} s")
        return False

    def bring(
        self,
        landed: Sequence[Flight],
        aloft: Sequence[Flight],
        versions: Mapping[int, Params],
        request: Request,
    ) -> list[Answer]:
        for flight in landed:
            self._norms.pop(flight.client, None)
        return self._levelled(
            [
                replace(self._answers.pop(flight.client), age=request.round - flight.version)
                for flight in landed
            ]
        )

    def _keep(self, letter: Letter, reply: Reply) -> bool:
        """An answer that no round waits for by its letters: whether it is kept."""
        client = letter.client
        errand = None if client is None else self._errands.get(client)
        if client is None or errand is None or errand.flight.version != letter.round:
            return False
        self._began = errand.since
        self._answers.pop(client, None)
        self._open(client, reply, errand.request)
        usual = norm(errand.request.shared)
        why = absurd(self._norms, usual, self.experiment.absurd).get(client)
        if why is not None and client in self._answers:
            del self._answers[client], self._norms[client]
            self.events.note("refused", why, client=client, round=self.desk.round)
        if client not in self._answers:
            self._failed.add(client)
        self._end(client, lost=client not in self._answers)
        return True

    def _end(self, client: int, *, lost: bool) -> None:
        if all(flight.client != client for flight in self._back):
            flight = self._errands[client].flight
            self._back.append(replace(flight, due=self._clock(), lost=lost))

    def _clock(self) -> float:
        assert self._ahead is not None
        return self.desk.now() + self._ahead

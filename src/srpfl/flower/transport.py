"""Flower's nodes as the round loop's clients.

A round asks idle nodes, takes the first n answers that pass the checks, and goes on. Those that
are still at work are left alone until their answers, by then useless, have come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from srpfl.algorithms.base import Algorithm
from srpfl.core.pieces import cut, filled
from srpfl.core.slots import packed
from srpfl.core.split import Params
from srpfl.engine.base import GRADIENT, Score
from srpfl.errors import SrpflError
from srpfl.flower.checks import MOST, GaveUp, Refused, absurd, norm, read_answer, read_scores
from srpfl.flower.desk import Desk
from srpfl.flower.judging import bounded, levelled
from srpfl.flower.parcels import Reply
from srpfl.flower.wire import EVALUATE, SETTLE, TRAIN
from srpfl.loop.rounds import Arrival, Request
from srpfl.participation.base import Answer, Call
from srpfl.runs.state import State

WEIGHT = 1e6  # of one sample, where a task weighs samples (by their tokens)


class TooFewClientsError(SrpflError):
    """Too few clients came in time, and the run is not to continue without them."""


class FlowerTransport:
    """The way to real clients and back."""

    def __init__(self, desk: Desk, *, replies: Params, trainable: Collection[str]) -> None:
        self.desk, self.experiment, self.events = desk, desk.experiment, desk.events
        self._trainable = trainable
        self._replies = replies  # what an answer holds, packed, without a gradient
        self.patience = desk.patience
        self._expected = self.population
        self._began = desk.now()
        self._answers: dict[int, Answer] = {}
        self._norms: dict[int, float] = {}
        self._tried: set[int] = set()  # asked since the last round that counted

    @property
    def population(self) -> int:
        return self.experiment.clients

    @property
    def communication(self) -> float:
        return 0.0  # it is in the real times already

    def gather(self) -> None:
        """Before the first round: give everyone time to come, so that it begins with them."""
        limit = self.desk.now() + self.patience.clients
        while len(self.desk.idle) < self.population and self.desk.now() < limit:
            self.desk.listen()
            self.desk.pause()

    def idle(self, call: Call, now: float = 0.0, *, wait: bool = True) -> Sequence[int]:
        """The idle clients, once there are n of them or patience is at an end. Waiting for them
        is part of the round: its clock starts here."""
        desk = self.desk
        self._began = desk.now()
        need = call.wait if call.deadline is None else 1
        while True:
            desk.listen()
            if self._can_begin(need):
                return self._to_ask(call)
            if desk.now() - self._began >= self.patience.clients:
                break
            desk.pause()
        free, waited = len(desk.idle), self.patience.clients
        text = f"{free} idle clients after {waited:g} s, {need} are needed"
        self._go_on_with_few(text, possible=bool(free))
        return self._to_ask(call)

    def _can_begin(self, need: int) -> bool:
        """Whether enough clients are idle. Once waited for without success, absent ones are not
        waited for again; after a try that came to nothing, those who were not in it are."""
        idle, present = self.desk.idle, self._present()
        expected = max(self._expected, len(present))
        others = expected - len(self._tried & present)
        return len(idle) >= min(need, expected) and len(idle - self._tried) >= min(need, others)

    def _present(self) -> set[int]:
        """Who is there and may still answer: one that keeps silent is as good as absent."""
        return self.desk.roll.node_of.keys() - self.desk.mail.overdue()

    def _to_ask(self, call: Call) -> list[int]:
        """The idle clients. After a try of a round that came to nothing, others are asked before
        those of that try: one who spoils each round for which it is drawn would end the run."""
        idle = self.desk.idle
        others = idle - self._tried
        missing = max(0, call.ask - len(others))
        return sorted([*others, *sorted(idle & self._tried)[:missing]])

    def _go_on_with_few(self, why: str, *, possible: bool = True) -> None:
        """Clients were waited for, and too few came: those who are absent are not waited for again,
        or the run ends."""
        roll = self.desk.roll
        if not possible or self.patience.few == "fail":
            refused = f" (last refused: {roll.refusal})" if roll.refusal else ""
            raise TooFewClientsError(f"{why}: start more nodes, or give them more time{refused}")
        self.events.note("few", why, round=self.desk.round)
        self._expected = max(1, len(self._present()))

    def send(self, request: Request) -> Iterator[Arrival]:
        """Yields once n good answers are there: only beside others can a norm be judged."""
        desk = self.desk
        desk.round, self._answers, self._norms = request.round, {}, {}
        self._tried.update(request.asked)
        sent = packed(request.shared, request.server)
        wants = request.wants_gradient
        usual = norm(request.shared)
        desk.gone()
        deadline = request.call.deadline
        # Waiting for clients is a part of the round: so much of it is left for their work.
        left = 0.0 if deadline is None else max(0.0, deadline - (desk.now() - self._began))
        within = left if request.call.partial else 0.0
        batch, waiting = desk.post(
            TRAIN,
            request.asked,
            request.round,
            sent,
            pieces=self._pieces(request),
            gradient=wants,
            within=within,
            beside=self._beside(request),
        )
        while True:
            came = desk.listen({batch})
            for client, reply in came:
                if client in waiting:
                    waiting.discard(client)
                    self._open(client, reply, request)
            waiting -= desk.gone()  # those that have left will not answer
            for client in sorted(waiting & desk.mail.overdue()):
                why = "it has neither answered in time nor given up"
                self.events.note("gone on", why, client=client, round=request.round)
                waiting.discard(client)
            if came:
                self._drop_absurd(request, usual)
            elapsed = desk.now() - self._began
            enough = self._enough(request.call, elapsed)
            in_time = deadline is None or elapsed < deadline or not self._answers
            if enough or not waiting or not in_time:
                break
            if elapsed > self.patience.round:
                self.events.note("gone on", "the round took too long", round=request.round)
                break
            desk.pause()
        yield from self._arrivals()
        if self._answers:  # fewer than were waited for: until now
            yield Arrival(-1, desk.now() - self._began, lost=True)

    def _enough(self, call: Call, elapsed: float) -> bool:
        if len(self._answers) < call.wait:
            return False
        times = [arrival.time for arrival in self._arrivals()]
        return elapsed >= call.end(times[call.wait - 1], self.communication)

    def collect(self, request: Request, counted: Sequence[Arrival]) -> list[Answer]:
        return self._levelled([self._answers[arrival.client] for arrival in counted])

    def _levelled(self, answers: Sequence[Answer]) -> list[Answer]:
        """Nobody outweighs all others where answers weigh by their samples."""
        fair, heavy = levelled(answers, self.experiment.outweigh)
        for client in heavy:
            self._outweighs(client, "training")
        return fair

    def _outweighs(self, client: int, which: str) -> None:
        why = f"its weight is cut: its {which} set is {self.experiment.outweigh:g} times usual"
        self.events.note("outweighs", why, client=client, round=self.desk.round)

    def settle(self, answers: Sequence[Answer]) -> None:
        """Only noted here. Each client hears it with its next letter, by when the server has
        saved the round: a client must not keep what a restarted server knows nothing of. A node
        knows its work by the round in which it was asked."""
        self._tried.clear()
        for answer in answers:
            self.desk.count([answer.client], self.desk.round + 1 - answer.age)

    def missed(self, request: Request, counted: Sequence[Arrival]) -> list[Arrival]:
        """Those that came with the last one that counted; others are still at work."""
        return self._arrivals()[len(counted) :]

    def evaluate(self, state: State) -> dict[str, list[Score]]:
        """Each client's test results by kind of evaluation, none (0 of 0) where it gave none."""
        desk = self.desk
        desk.round = state.round - 1  # events belong to the round that is over
        limit = desk.now() + self.patience.evaluation
        found: dict[int, dict[str, Score]] = {}
        waiting: set[int] = set()
        asked: set[int] = set()
        batches: set[int] = set()
        seen = -1
        sent = packed(state.shared, self.experiment.algorithm.sends(state.server))
        desk.gone()
        # Stragglers are asked when they are done with their stale work.
        while desk.now() < limit:
            for client, reply in desk.listen(batches):
                waiting.discard(client)
                self._mark(client, reply, state.round, found)
            waiting -= desk.gone()
            if seen != desk.looks:
                seen = desk.looks
                if free := sorted(desk.idle - asked):
                    batch, reached = desk.post(EVALUATE, free, state.round, sent)
                    batches.add(batch)
                    waiting |= reached
                    asked |= set(free)
            if not waiting and self._present() <= asked:
                break
            desk.pause()
        for client in sorted(waiting):
            self.events.note("not evaluated", "no answer in time", client=client, round=desk.round)
        return self._scores(found)

    def finish(self) -> None:
        """Tell the last participants that they count."""
        desk = self.desk
        limit = desk.now() + self.patience.settling
        asked: set[int] = set()
        while desk.owed:
            ready = sorted((desk.owed - asked) & desk.idle)
            if ready:
                desk.post(SETTLE, ready, desk.round, None)
                asked |= set(ready)
            desk.listen()
            if desk.now() >= limit:
                break
            desk.pause()
        for client in sorted(desk.owed):
            why = f"it has not heard that round {desk.counted[client]} counted"
            self.events.note("not settled", why, client=client, round=desk.round)

    def _open(self, client: int, reply: Reply, request: Request) -> None:
        """Take an answer in, if there is nothing wrong with it."""
        try:
            if reply.error:
                self.events.note("failed", reply.error, client=client, round=request.round)
            elif reply.malformed:
                raise Refused(reply.malformed)
            else:
                answer = self._read(client, reply, request, self.desk.now() - self._began)
                self._answers[client], self._norms[client] = answer, norm(answer.shared)
        except Refused as error:
            self.events.note("refused", str(error), client=client, round=request.round)
        except GaveUp:
            self.events.note("gave up", client=client, round=request.round)

    def _beside(self, request: Request) -> Mapping[int, Mapping[str, Any]]:
        """What goes to each client beside what all of them get."""
        return {}

    def _read(self, client: int, reply: Reply, request: Request, time: float) -> Answer:
        expected, most = self._expected_of(request), self._samples(client)
        if not self._cuts:
            return read_answer(
                reply.content, request, expected, client=client, time=time, most=most
            )
        down, up = self.experiment.algorithm.travels(request.shared, request.server, client)
        answer = read_answer(
            reply.content, request, cut(expected, up), client=client, time=time, most=most
        )
        nothing = {name: torch.zeros_like(value) for name, value in request.shared.items()}
        got = filled(cut(request.shared, down), down, nothing)
        return replace(answer, shared=filled(answer.shared, up, got))

    @property
    def _cuts(self) -> bool:
        """Whether clients get or send pieces of the shared part."""
        return type(self.experiment.algorithm).travels is not Algorithm.travels

    def _pieces(self, request: Request) -> Callable[[int], Params | None]:
        """What each client gets instead of all that is sent; None: all of it."""

        def own(client: int) -> Params | None:
            if not self._cuts:
                return None
            down = self.experiment.algorithm.travels(request.shared, request.server, client).down
            return packed(cut(request.shared, down), request.server) if down else None

        return own

    def _samples(self, client: int) -> int:
        sizes = self.desk.roll.sizes.get(client)
        return MOST if sizes is None else sizes.train

    def _expected_of(self, request: Request) -> Params:
        """What an answer to the request holds, packed."""
        if not request.wants_gradient:
            return self._replies
        trained = {n: v for n, v in request.shared.items() if n in self._trainable}
        return {**self._replies, **packed({}, {GRADIENT: trained})}

    def _drop_absurd(self, request: Request, usual: float) -> None:
        for client, why in absurd(self._norms, usual, self.experiment.absurd).items():
            del self._answers[client], self._norms[client]
            self.events.note("refused", why, client=client, round=request.round)

    def _mark(
        self, client: int, reply: Reply, round: int, found: dict[int, dict[str, Score]]
    ) -> None:
        task, sizes = self.experiment.task, self.desk.roll.sizes[client]
        try:
            if reply.error or reply.malformed:
                raise Refused(reply.error or reply.malformed)
            most = sizes.test * (WEIGHT if task.weighs else 1.0)
            found[client] = read_scores(
                reply.content, self.experiment.kinds, task, client=client, round=round, most=most
            )
        except (Refused, GaveUp) as error:
            why = str(error) or "it gave up"
            self.events.note("not evaluated", why, client=client, round=self.desk.round)

    def _scores(self, found: dict[int, dict[str, Score]]) -> dict[str, list[Score]]:
        """By kind, for everyone; nobody outweighs all others."""
        scores: dict[str, list[Score]] = {}
        for kind in self.experiment.kinds:
            given = {client: of[kind] for client, of in found.items()}
            # A task has the same number of sums for everyone: most of them know which.
            lengths = Counter(len(score.sums) for score in given.values() if score.weight)
            usual = lengths.most_common(1)[0][0] if lengths else 0
            for client, score in list(given.items()):
                if score.weight and len(score.sums) != usual:
                    why = f"it claims {len(score.sums)} scores where others have {usual}"
                    self.events.note("not evaluated", why, client=client, round=self.desk.round)
                    del given[client]
            fair, heavy = bounded(list(given.values()), self.experiment.outweigh)
            for client in heavy:
                self._outweighs(client, "test")
            by_client = {score.client: score for score in fair}
            nothing = (Score(client, (), 0.0) for client in range(self.population))
            scores[kind] = [by_client.get(empty.client, empty) for empty in nothing]
        return scores

    def _arrivals(self) -> list[Arrival]:
        """In order of arrival; answers that one look found together go by number."""
        answers = sorted(self._answers.values(), key=lambda answer: (answer.time, answer.client))
        return [Arrival(answer.client, answer.time, answer.part) for answer in answers]

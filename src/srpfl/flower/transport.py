"""Flower's nodes as the round loop's clients.

A round asks idle nodes, takes the first n answers that pass the checks, and goes on. Whoever is
still at work is left alone until its answer, by then useless, has come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from flwr.app import Message
from flwr.serverapp import Grid

from srpfl.engine.base import Score
from srpfl.errors import SrpflError
from srpfl.flower.checks import GaveUp, Refused, absurd, read_answer, read_scores
from srpfl.flower.events import Events
from srpfl.flower.experiment import Experiment
from srpfl.flower.mail import Letter, Mail
from srpfl.flower.roll import Numbers, Roll, reason
from srpfl.flower.wire import EVALUATE, HELLO, SETTLE, TRAIN, Task, pack, task_record
from srpfl.participation.base import Call
from srpfl.rounds import Answer, Arrival, Request, State
from srpfl.split import Params

ROLL_CALL = 2.0  # seconds between two looks at who is online


class TooFewClientsError(SrpflError):
    """Too few clients came in time, and the run is not to go on without them."""


class FlowerTransport:
    """The way to real clients and back."""

    def __init__(
        self,
        grid: Grid,
        experiment: Experiment,
        *,
        numbers: Numbers,
        counted: Mapping[int, int],
        events: Events,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.experiment, self.events = experiment, events
        self.patience = experiment.patience
        self._grid, self._now, self._sleep = grid, now, sleep
        self._mail = Mail(grid)
        self._roll = Roll(numbers, events)
        self._called = -ROLL_CALL
        self._counted = dict(counted)  # the last round in which each client counted
        self._told: dict[int, int] = {}  # what each client has heard of that, for certain
        self._expected = self.population
        self._round = 0
        self._began = now()
        self._answers: dict[int, Answer] = {}

    @property
    def population(self) -> int:
        return self.experiment.clients

    @property
    def communication(self) -> float:
        return 0.0  # it is in the real times already

    def gather(self) -> None:
        """Before the first round: give everyone time to come, so that it begins with them."""
        limit = self._now() + self.patience.clients
        while len(self._free()) < self.population and self._now() < limit:
            self._listen()
            self._sleep(self.patience.poll)

    def idle(self, call: Call) -> Sequence[int]:
        """The idle clients, once there are n of them or patience is at an end. Waiting for them
        is part of the round: its clock starts here."""
        self._began = self._now()
        need = call.wait if call.deadline is None else 1
        while True:
            self._listen()
            free = self._free()
            # Once waited for in vain, absent clients are not waited for again.
            if len(free) >= min(need, max(self._expected, len(self._roll.node_of))):
                return free
            if self._now() - self._began >= self.patience.clients:
                break
            self._sleep(self.patience.poll)
        text = f"{len(free)} idle clients after {self.patience.clients:g} s, {need} are needed"
        if not free or self.patience.few == "fail":
            raise TooFewClientsError(f"{text}: start more nodes, or give them more time")
        self.events.note("few", text, round=self._round)
        self._expected = max(1, len(self._roll.node_of))
        return free

    def send(self, request: Request) -> Iterator[Arrival]:
        """Yields once n good answers are there: only beside others can a norm be judged."""
        self._round, self._answers = request.round, {}
        wants = request.wants_gradient
        batch, waiting = self._post(
            TRAIN, request.asked, request.round, request.shared, gradient=wants
        )
        deadline = request.call.deadline
        while True:
            for client, reply in self._listen({batch}):
                if client in waiting:
                    waiting.discard(client)
                    self._open(client, reply, request)
            waiting &= self._roll.node_of.keys()  # whoever has left will not answer
            self._drop_absurd(request)
            elapsed = self._now() - self._began
            enough = self._enough(request.call, elapsed)
            in_time = deadline is None or elapsed < deadline or not self._answers
            if enough or not waiting or not in_time:
                break
            if elapsed > self.patience.round:
                self.events.note("gone on", "the round took too long", round=request.round)
                break
            self._sleep(self.patience.poll)
        yield from self._arrivals()

    def _enough(self, call: Call, elapsed: float) -> bool:
        times = [arrival.time for arrival in self._arrivals()]
        return len(times) >= call.wait and elapsed >= call.end(
            times[call.wait - 1], self.communication
        )

    def collect(self, request: Request, counted: Sequence[Arrival]) -> list[Answer]:
        return [self._answers[arrival.client] for arrival in counted]

    def settle(self, answers: Sequence[Answer]) -> None:
        """Only noted here. Each client hears it with its next letter, by when the server has
        saved the round: a client must not keep what a restarted server knows nothing of."""
        for answer in answers:
            self._counted[answer.client] = self._round + 1

    def missed(self, request: Request, counted: Sequence[Arrival]) -> list[Arrival]:
        """Those that came with the last one that counted; others are still at work."""
        return self._arrivals()[len(counted) :]

    def evaluate(self, state: State) -> dict[str, list[Score]]:
        """Each client's test results by kind of evaluation, none (0 of 0) where it gave none."""
        self._round = state.round - 1  # events belong to the round that is over
        kinds = self.experiment.kinds
        limit = self._now() + self.patience.evaluation
        scores: dict[str, list[Score]] = {
            kind: [Score(client, 0, 0) for client in range(self.population)] for kind in kinds
        }
        waiting: set[int] = set()
        asked: set[int] = set()
        batches: set[int] = set()
        # Stragglers are asked when they are done with their stale work.
        while self._now() < limit:
            free = [client for client in self._free() if client not in asked]
            if free:
                batch, reached = self._post(EVALUATE, free, state.round, state.shared)
                batches.add(batch)
                waiting |= reached
                asked |= set(free)
            for client, reply in self._listen(batches):
                waiting.discard(client)
                self._mark(client, reply, state.round, scores)
            waiting &= self._roll.node_of.keys()
            if not waiting and self._roll.node_of.keys() <= asked:
                break
            self._sleep(self.patience.poll)
        for client in sorted(waiting):
            self.events.note("not evaluated", "no answer in time", client=client, round=self._round)
        return scores

    def finish(self) -> None:
        """Tell the last participants that they count."""
        limit = self._now() + self.patience.settling
        asked: set[int] = set()
        while owed := {c for c, round in self._counted.items() if self._told.get(c) != round}:
            ready = sorted((owed - asked) & set(self._free()))
            if ready:
                self._post(SETTLE, ready, self._round, None)
                asked |= set(ready)
            self._listen()
            if self._now() >= limit:
                break
            self._sleep(self.patience.poll)
        for client in sorted(owed):
            why = f"it has not heard that round {self._counted[client]} counted"
            self.events.note("not settled", why, client=client, round=self._round)

    def _free(self) -> list[int]:
        busy = self._mail.busy
        return sorted(client for client, node in self._roll.node_of.items() if node not in busy)

    def _post(
        self,
        kind: str,
        clients: Sequence[int],
        round: int,
        shared: Params | None,
        *,
        gradient: bool = False,
    ) -> tuple[int, set[int]]:
        """Write to clients; the letters' number and those that they are on their way to."""
        batch = self._mail.batch()
        arrays = None if shared is None else pack(shared)
        useful = self.patience.work if kind == TRAIN else self.patience.evaluation
        letters = []
        for client in clients:
            task = Task(
                experiment=self.experiment.name,
                client=client,
                round=round,
                seed=self.experiment.seed,
                budget=useful,
                counted=self._counted.get(client, 0),
                wants_gradient=gradient,
                kinds=",".join(self.experiment.kinds),
            )
            node = self._roll.node_of[client]
            letter = Letter(node, kind, batch, client, task.counted, round)
            letters.append((letter, task_record(task, arrays)))
        failed = self._mail.push(letters, useful=useful)
        for letter in failed:
            self.events.note("failed", "Flower took no message", client=letter.client, round=round)
        return batch, set(clients) - {
            letter.client for letter in failed if letter.client is not None
        }

    def _listen(self, batches: Collection[int] = ()) -> list[tuple[int, Message]]:
        """See who is there and what has come: the answers to these letters, by client. Answers to
        older ones are dropped here."""
        if self._now() - self._called >= ROLL_CALL:
            self._called = self._now()
            new = self._roll.update(set(self._grid.get_node_ids()), self._round)
            batch = self._mail.batch()
            hello = task_record(Task(self.experiment.name, 0, 0, 0, 0.0, 0))
            self._mail.push([(Letter(n, HELLO, batch), hello) for n in new], useful=0.0)
        answers = []
        replies, strange = self._mail.pull()
        for message in strange:
            node = message.metadata.src_node_id
            self.events.note("refused", f"node {node} was not asked", round=self._round)
        for letter, reply in replies:
            if letter.client is None:
                self._roll.hear(letter.node, reply, self._round)
                continue
            if not reply.has_error():
                self._told[letter.client] = letter.counted
            if letter.batch in batches:
                answers.append((letter.client, reply))
            elif letter.kind == TRAIN:
                why = f"its answer to round {letter.round + 1} is dropped"
                self.events.note("late", why, client=letter.client, round=self._round)
        return answers

    def _open(self, client: int, reply: Message, request: Request) -> None:
        """Take an answer in, if there is nothing wrong with it."""
        time = self._now() - self._began
        try:
            if reply.has_error():
                self.events.note("failed", reason(reply), client=client, round=request.round)
            else:
                self._answers[client] = read_answer(
                    reply.content, request, client=client, time=time
                )
        except Refused as error:
            self.events.note("refused", str(error), client=client, round=request.round)
        except GaveUp:
            self.events.note("gave up", client=client, round=request.round)

    def _drop_absurd(self, request: Request) -> None:
        answers = {client: answer.shared for client, answer in self._answers.items()}
        for client, why in absurd(answers, request.shared, self.experiment.absurd).items():
            del self._answers[client]
            self.events.note("refused", why, client=client, round=request.round)

    def _mark(
        self, client: int, reply: Message, round: int, scores: Mapping[str, list[Score]]
    ) -> None:
        try:
            if reply.has_error():
                raise Refused(reason(reply))
            kinds = tuple(scores)
            found = read_scores(reply.content, kinds, client=client, round=round)
        except (Refused, GaveUp) as error:
            why = str(error) or "it gave up"
            self.events.note("not evaluated", why, client=client, round=self._round)
        else:
            for kind in kinds:
                scores[kind][client] = found[kind]

    def _arrivals(self) -> list[Arrival]:
        """In order of arrival; answers that one look found together go by number."""
        answers = sorted(self._answers.values(), key=lambda answer: (answer.time, answer.client))
        return [Arrival(answer.client, answer.time) for answer in answers]

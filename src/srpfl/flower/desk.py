"""The server's desk: letters out, answers in, and who is idle.

What is done here grows with the letters and with those that come and go, not with the population:
nobody goes through all clients to find the idle ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from flwr.serverapp import Grid

from srpfl.core.split import Params
from srpfl.flower.events import Events
from srpfl.flower.experiment import Experiment
from srpfl.flower.mail import Letter, Mail
from srpfl.flower.parcels import Limit, Reply
from srpfl.flower.roll import Numbers, Roll
from srpfl.flower.wire import (
    DOING,
    HELLO,
    MASKS,
    REFUSED,
    TRAIN,
    Assignment,
    assignment_record,
    pack,
    refusal_record,
)

ROLL_CALL = 2.0  # seconds between two looks at who is online ...
SHARE = 0.1  # ... or more, such that they take no more than this part of the time


class Desk:
    """Writes to clients and hears from them."""

    def __init__(
        self,
        grid: Grid,
        experiment: Experiment,
        *,
        run: str,
        model: str,
        limit: Limit,
        numbers: Numbers,
        counted: Mapping[int, int],
        events: Events,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.experiment, self.events, self.run = experiment, events, run
        self.patience = experiment.patience
        self.now, self._sleep, self._grid = now, sleep, grid
        self.mail = Mail(grid, limit=limit, now=now, sleep=self._rest)
        self.roll = Roll(
            numbers,
            events,
            model=model,
            authenticated=experiment.has_keys,
            users=experiment.users,
        )
        self.round = 0
        self.counted = dict(counted)  # the last round in which each client counted
        self.owed: set[int] = set(counted)  # those that have not heard of it, as far as one knows
        self.idle: set[int] = set()
        self.looks = 0  # changes whenever `idle` has
        self.bytes = 0  # received
        self.kept = 0  # how often a client has said that it keeps what counted
        self.report: Callable[[], None] = lambda: None  # called whenever the roll is
        # Takes an answer to an older letter, if late ones are kept.
        self.keeps: Callable[[Letter, Reply], bool] = lambda letter, reply: False
        self._gone: set[int] = set()  # who left, or whose answer was lost
        self._calls = -ROLL_CALL  # when the roll is called next
        self._paused = 0.0  # seconds that the last look for answers took
        self._began = 0.0  # when the SuperLink was last asked

    def pause(self) -> None:
        """Until the next look; when looks take long, longer, so that the SuperLink can breathe."""
        self._sleep(max(self.patience.poll, 2 * self._paused))

    def _rest(self, seconds: float) -> None:
        """Until what failed at the SuperLink is tried again; how long it failed is no measure of
        how often to look."""
        self.report()
        self._sleep(seconds)
        self._began = self.now()

    def gone(self) -> set[int]:
        """Those that will not answer any more what they were asked, since one last looked."""
        gone, self._gone = self._gone, set()
        return gone

    def count(self, clients: Collection[int], round: int) -> None:
        """Their answers counted: they hear it with their next letter."""
        for client in clients:
            self.counted[client] = round
            self.owed.add(client)

    def post(
        self,
        kind: str,
        clients: Sequence[int],
        round: int,
        sent: Params | None,
        *,
        pieces: Callable[[int], Params | None] = lambda client: None,
        gradient: bool = False,
        parts: Mapping[int, float] | None = None,
        within: float = 0.0,
        beside: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> tuple[int, set[int]]:
        """Write to clients; the letters' number and those that they are on their way to. Who is
        not in ``parts`` is to do all of its work; some get only pieces of what is sent, or
        something beside it."""
        batch = self.mail.batch()
        arrays = None if sent is None else pack(sent)
        patience = self.patience
        useful = {TRAIN: patience.work, MASKS: patience.masks}.get(kind, patience.evaluation)
        letters = []
        for client in clients:
            assignment = Assignment(
                experiment=self.experiment.name,
                run=self.run,
                client=client,
                name=self.roll.name_of[client],
                round=round,
                seed=self.experiment.seed,
                budget=useful,
                counted=self.counted.get(client, 0),
                inherit=self.experiment.inherit,
                wants_gradient=gradient,
                part=(parts or {}).get(client, 1.0),
                within=within,
                kinds=",".join(self.experiment.kinds),
            )
            node = self.roll.node_of[client]
            letter = Letter(node, kind, batch, client, assignment.counted, round)
            masks = None if beside is None else beside.get(client)
            own = pieces(client)
            letters.append(
                (letter, assignment_record(assignment, arrays if own is None else pack(own), masks))
            )
        failed = self.mail.push(letters, useful=useful)
        for letter in failed:
            self.events.note("failed", "Flower took no message", client=letter.client, round=round)
        for client in clients:
            self._refresh(client)
        return batch, set(clients) - {letter.client for letter in failed}

    def listen(self, batches: Collection[int] = ()) -> list[tuple[int, Reply]]:
        """See who is there and what has come: the answers to these letters, by client. Answers to
        older ones are dropped here."""
        self._call_the_roll()
        self._began = self.now()
        replies, strange, lost = self.mail.pull()
        self._paused = self.now() - self._began
        for reply in strange:
            self.events.note("refused", f"node {reply.node} was not asked", round=self.round)
        for letter in lost:
            self._lost(letter)
        answers = [
            (letter.client, reply)
            for letter, reply in replies
            if self._heard(letter, reply, batches) and letter.client is not None
        ]
        for client in self.roll.changed:
            self._refresh(client)
        self.roll.changed.clear()
        self.roll.numbers.save()  # once for all who came: it takes as long as there are clients
        self._tell_refused()
        return answers

    def _tell_refused(self) -> None:
        """Nodes that cannot take part hear why, so that it stands in their logs too."""
        told, self.roll.untold = self.roll.untold, {}
        batch = self.mail.batch()
        letters = [(Letter(n, REFUSED, batch), refusal_record(why)) for n, why in told.items()]
        self.mail.push(letters, useful=0.0)

    def _heard(self, letter: Letter, reply: Reply, batches: Collection[int]) -> bool:
        """Take note of a reply; whether it is one that is waited for."""
        self.bytes += reply.size
        if letter.client is None:
            if letter.kind == HELLO:
                self.roll.hear(letter.node, reply, self.round)
            return False
        fine = not reply.error and not reply.malformed
        if fine and self.counted.get(letter.client, 0) == letter.counted:
            self.kept += letter.client in self.owed
            self.owed.discard(letter.client)
        self._refresh(letter.client)
        if letter.batch in batches:
            return True
        if letter.kind == TRAIN and not self.keeps(letter, reply):
            why = f"its answer to round {letter.round + 1} is dropped"
            self.events.note("late", why, client=letter.client, round=self.round)
        return False

    def _lost(self, letter: Letter) -> None:
        assert letter.client is not None
        self._gone.add(letter.client)
        self._refresh(letter.client)
        why = f"its answer to '{letter.kind}' of round {letter.round + 1} got lost on the way"
        self.events.note("lost", why, client=letter.client, round=self.round)

    def _call_the_roll(self) -> None:
        if self.now() < self._calls:
            return
        self._began = self.now()
        online = set(self.mail.stubborn(self._grid.get_node_ids))
        new = self.roll.update(online, self.round)
        took = self.now() - self._began
        self._calls = self.now() + max(ROLL_CALL, took / SHARE)
        batch = self.mail.batch()
        experiment = self.experiment
        who = Assignment(experiment.name, run=self.run, inherit=experiment.inherit)
        hello, doing = assignment_record(who), assignment_record(who)
        self.mail.push([(Letter(n, HELLO, batch), hello) for n in new], useful=0.0)
        quiet = self.mail.quiet()
        asks = [Letter(a.node, DOING, batch, a.client, about=number) for number, a in quiet]
        self.mail.push([(letter, doing) for letter in asks], useful=0.0)
        self.report()

    def _refresh(self, client: int) -> None:
        """Whether a client is idle now."""
        self.looks += 1
        if client in self.roll.node_of and not self.mail.owes(client):
            self.idle.add(client)
        else:
            self.idle.discard(client)
        if client not in self.roll.node_of:
            self._gone.add(client)

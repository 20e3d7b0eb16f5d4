"""Letters to nodes and what came back: who owes an answer, and to which letter.

Flower's grid can push messages and look for replies without waiting; everything else that it
offers waits for everyone. It says nothing of an answer that was lost on the way: a client that is
silent for longer than usual is asked what it is doing. As a node works through its messages one by
one, a node that answers that has nothing else to do, and the answer before it is lost.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from srpfl.flower.parcels import Limit, Parcels, Reply
from srpfl.flower.stubborn import stubborn
from srpfl.flower.wire import DOING, HELLO, REFUSED

SUPERLINK = 1  # the node in whose name the SuperLink answers
SPARE = 3600.0  # a letter stays valid so much longer than the answer is of use
QUIET = 20.0  # seconds of silence that are nothing unusual, whatever the others take
SLOW = 4.0  # nor is it unusual to take so many times as long as the others
AGAIN = 60.0  # seconds until a silent node is asked again what it is doing
WAY = 60.0  # seconds for an answer's way, beside the time for which its work is of use


@dataclass(frozen=True)
class Letter:
    """A message to a node, as the server remembers it."""

    node: int
    kind: str
    batch: int  # letters that were sent together
    client: int | None = None
    counted: int = 0  # what the client was told about its last answer
    round: int = 0
    sent: float = 0.0
    useful: float = 0.0  # seconds
    about: str = ""  # the letter whose answer has not come

    @property
    def asks(self) -> bool:
        """Whether it is no work: it asks something, or says why a node cannot take part."""
        return self.kind in (HELLO, DOING, REFUSED)


def _may_answer(reply: Reply, letter: Letter) -> bool:
    """The node that was asked, or the SuperLink for one that is gone: an error in its own name. 0
    is nobody: what cannot be read does not say who sent it."""
    return reply.node in (letter.node, 0) or (bool(reply.error) and reply.node == SUPERLINK)


class Mail:
    """The letters that are on their way. A client that owes an answer is busy."""

    def __init__(
        self,
        grid: Grid,
        *,
        limit: Limit | None = None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._grid, self._now = grid, now
        self.stubborn = partial(stubborn, now=now, sleep=sleep)
        self._parcels = Parcels(grid, limit=limit or Limit(), now=now)
        self._open: dict[str, Letter] = {}
        self._lost: dict[str, Letter] = {}  # given up; an answer may come nevertheless
        self._owed: Counter[int] = Counter()
        self._usual: dict[str, float] = {}  # seconds until an answer, by kind
        self._asked: dict[str, float] = {}  # when a node was asked about a letter
        self._batches = 0

    def owes(self, client: int) -> bool:
        """Whether a client is at work, as far as one knows."""
        return self._owed[client] > 0

    def batch(self) -> int:
        """A new number for letters that belong together."""
        self._batches += 1
        return self._batches

    def push(self, letters: Sequence[tuple[Letter, RecordDict]], *, useful: float) -> list[Letter]:
        """Send; the letters that Flower did not take come back."""
        if not letters:
            return []
        # Flower takes an expired letter for an answered one, and the node for an idle one.
        messages = [
            Message(content, letter.node, letter.kind, ttl=useful + SPARE)
            for letter, content in letters
        ]
        ids = list(self.stubborn(self._grid.push_messages, messages))
        ids += [""] * (len(letters) - len(ids))
        failed = []
        for (letter, _), number in zip(letters, ids, strict=True):
            if number:
                self._open[number] = replace(letter, sent=self._now(), useful=useful)
                if letter.client is not None and not letter.asks:
                    self._owed[letter.client] += 1
            else:
                failed.append(letter)
        return failed

    def pull(self) -> tuple[list[tuple[Letter, Reply]], list[Reply], list[Letter]]:
        """The replies that are there, with the letters they answer; those nobody asked for; and
        the letters whose answers must be taken for lost."""
        known, strange, lost = [], [], []
        # Questions come last: what was sent before such an answer is not lost if it is here too.
        for reply in sorted(self._pulled(), key=self._is_question):
            letter = self._open.get(reply.to) or self._lost.get(reply.to)
            if letter is None or not _may_answer(reply, letter):
                strange.append(reply)
                continue
            if self._close(reply.to) and not letter.asks:
                self._learn(letter)
            self._lost.pop(reply.to, None)
            if letter.kind != DOING:
                known.append((letter, reply))
            elif not reply.error and (gone := self._open.get(letter.about)):
                self._close(letter.about)
                self._lost[letter.about] = gone
                lost.append(gone)
        return known, strange, lost

    def quiet(self) -> list[tuple[str, Letter]]:
        """The letters whose answers should have come by now, to be asked about: each when it has
        taken unusually long, and again from time to time."""
        now, found = self._now(), []
        for number, letter in self._open.items():
            if letter.asks or letter.client is None:
                continue
            usual = max(QUIET, SLOW * self._usual.get(letter.kind, 0.0))
            due = self._asked.get(number, letter.sent + min(usual, letter.useful) - AGAIN) + AGAIN
            if now >= due:
                self._asked[number] = now
                found.append((number, letter))
        return found

    def overdue(self) -> set[int]:
        """Clients whose answers are of no use any more, and who have not given up as they should:
        they owe an answer, but nobody waits for it."""
        now = self._now()
        return {
            letter.client
            for letter in self._open.values()
            if letter.client is not None
            and not letter.asks
            and now > letter.sent + letter.useful + WAY
        }

    def _pulled(self) -> list[Reply]:
        return self.stubborn(self._parcels.pull, list(self._open)) if self._open else []

    def _is_question(self, reply: Reply) -> bool:
        letter = self._open.get(reply.to)
        return letter is not None and letter.kind == DOING

    def _close(self, number: str) -> bool:
        letter = self._open.pop(number, None)
        self._asked.pop(number, None)
        self._parcels.forget(number)
        if letter is None:
            return False
        if letter.client is not None and not letter.asks:
            self._owed[letter.client] -= 1
        return True

    def _learn(self, letter: Letter) -> None:
        """How long answers take: a running mean that follows within some answers."""
        took = self._now() - letter.sent
        before = self._usual.get(letter.kind, took)
        self._usual[letter.kind] = before + 0.1 * (took - before)

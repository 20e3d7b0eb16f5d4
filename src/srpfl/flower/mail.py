"""Letters to nodes and what came back: who owes an answer, and to which letter.

Flower's grid can push messages and look for replies without waiting; everything else that it
offers waits for everyone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

SPARE = 3600.0  # a letter stays valid so much longer than the answer is of use


@dataclass(frozen=True)
class Letter:
    """A message to a node, as the server remembers it."""

    node: int
    kind: str
    batch: int  # letters that were sent together
    client: int | None = None
    counted: int = 0  # what the client was told about its last answer
    round: int = 0


class Mail:
    """The letters that are on their way. A node that owes an answer is busy."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._open: dict[str, Letter] = {}
        self._batches = 0

    @property
    def busy(self) -> set[int]:
        return {letter.node for letter in self._open.values()}

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
        ids = list(self._grid.push_messages(messages))
        ids += [""] * (len(letters) - len(ids))
        failed = []
        for (letter, _), number in zip(letters, ids, strict=True):
            if number:
                self._open[number] = letter
            else:
                failed.append(letter)
        return failed

    def pull(self) -> tuple[list[tuple[Letter, Message]], list[Message]]:
        """The replies that are there, with the letters they answer, and those nobody asked for."""
        if not self._open:
            return [], []
        known, strange = [], []
        for reply in self._grid.pull_messages(list(self._open)):
            letter = self._open.get(reply.metadata.reply_to_message_id)
            # The SuperLink itself answers for nodes that are gone: an error, in its own name.
            if letter is None or (
                not reply.has_error() and reply.metadata.src_node_id != letter.node
            ):
                strange.append(reply)
                continue
            del self._open[reply.metadata.reply_to_message_id]
            known.append((letter, reply))
        return known, strange

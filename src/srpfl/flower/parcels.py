"""Replies of nodes, fetched from Flower's grid without believing them.

Flower's own ``pull_messages`` waits minutes for a reply that was uploaded by half, holds whatever a
node uploaded in memory, and raises for all replies if one of them is malformed. Here a reply is
fetched object by object, up to a limit; its form is checked before anything is made of it; and
whatever is wrong with it is a sentence about that reply alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from srpfl.flower.texts import harmless

NUMBERS = 1 << 20  # bytes for all that is not an array ...
EACH = 1024  # ... and for each object, for names and the like
HALF = 45.0  # seconds without progress after which an upload is taken for broken off

# What may hang below what; anything else is refused unread.
BELOW = {
    "Message": {"RecordDict"},
    "RecordDict": {"ArrayRecord", "ConfigRecord", "MetricRecord"},
    "ArrayRecord": {"Array"},
    "Array": {"ArrayChunk"},
    "ArrayChunk": set(),
    "ConfigRecord": set(),
    "MetricRecord": set(),
}


@dataclass(frozen=True)
class Limit:
    """What a reply may have at most. Each object costs the server a call, however small it is."""

    bytes: int = 1 << 31
    objects: int = 100_000


class Malformed(Exception):
    """A reply that is none; the text says why."""


@dataclass(frozen=True)
class Reply:
    """What came back for a message: its content, or what is wrong."""

    to: str  # the id of the message that it answers
    node: int  # who sent it; for errors that Flower itself reports, nobody in particular
    content: RecordDict | None = None
    error: str = ""  # the node failed, or is gone
    malformed: str = ""  # it sent something that is no answer
    size: int = 0  # bytes


class Parcels:
    """Replies on their way from the SuperLink to here."""

    def __init__(
        self, grid: Grid, *, limit: Limit, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._grid, self._now, self.limit = grid, now, limit
        self._client = _client_of(grid, limit.bytes)
        self._coming: dict[tuple[str, int], _Parcel] = {}  # by letter, and who answers it

    def pull(self, ids: Sequence[str]) -> list[Reply]:
        """The replies that are here by now."""
        if self._client is None:
            return list(self._pull_whole(ids))
        coming = {to for to, _ in self._coming}
        if open_ := [number for number in ids if number not in coming]:
            for parcel in self._announced(open_):
                self._coming[parcel.to, parcel.node] = parcel
        done = [reply for parcel in list(self._coming.values()) if (reply := self._fetch(parcel))]
        for reply in done:
            del self._coming[reply.to, reply.node]
        return done

    def forget(self, to: str) -> None:
        """Nobody waits any longer for the reply to this message."""
        for key in [key for key in self._coming if key[0] == to]:
            del self._coming[key]

    def _announced(self, ids: Sequence[str]) -> Iterator[_Parcel]:
        from flwr.proto.runtime_pb2 import PullAppMessagesRequest

        assert self._client is not None
        found = self._client.PullMessages(PullAppMessagesRequest(message_ids=ids))
        for proto, tree in zip(found.messages_list, found.message_object_trees, strict=False):
            meta = proto.metadata
            parcel = _Parcel(
                meta.reply_to_message_id, meta.src_node_id, meta.message_id, self._now()
            )
            parcel.missing = dict.fromkeys(_ids(tree, self.limit.objects))
            yield parcel

    def _fetch(self, parcel: _Parcel) -> Reply | None:
        """Fetch what there is of a reply; None while there is more to come."""
        try:
            self._fetch_objects(parcel)
            if parcel.missing:
                if self._now() - parcel.progress > HALF:
                    self._confirm(parcel)
                    why = "its answer was uploaded by half and then broke off"
                    return Reply(parcel.to, parcel.node, error=why)
                return None
            reply = opened(parcel, self.limit.bytes)
        except (Malformed, TooLarge) as problem:
            reply = Reply(parcel.to, parcel.node, malformed=str(problem), size=parcel.size)
        self._confirm(parcel)
        return reply

    def _fetch_objects(self, parcel: _Parcel) -> None:
        from flwr.proto.message_pb2 import PullObjectRequest

        assert self._client is not None
        most = self.limit
        if len(parcel.missing) > most.objects:
            raise Malformed(f"it is made of more than the {most.objects} objects that it may have")
        run: Any = getattr(self._grid, "_run", None)
        for number in list(parcel.missing):
            request = PullObjectRequest(
                node=getattr(self._grid, "node", None), run_id=run.run_id, object_id=number
            )
            found = self._client.PullObject(request)
            if not found.object_found:
                raise Malformed("a part of it is not there")
            if not found.object_available:
                return
            parcel.add(number, found.object_content, self._now())
            if parcel.size > most.bytes:
                raise Malformed(f"it is larger than the {most.bytes} bytes that it may have")

    def _confirm(self, parcel: _Parcel) -> None:
        """Let the SuperLink throw it away."""
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest

        assert self._client is not None
        run: Any = getattr(self._grid, "_run", None)
        self._client.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(
                node=getattr(self._grid, "node", None),
                run_id=run.run_id,
                message_object_id=parcel.id,
            )
        )

    def _pull_whole(self, ids: Sequence[str]) -> Iterator[Reply]:
        """From a grid that hands out whole messages: one in this process."""
        try:
            found: Iterable[Message] = self._grid.pull_messages(list(ids))
        except Exception as error:  # one of them is malformed: find out which
            if len(ids) == 1:
                yield Reply(ids[0], 0, malformed=f"it cannot be read ({harmless(error)})")
                return
            for number in ids:
                yield from self._pull_whole([number])
            return
        for message in found:
            yield _whole(message)


@dataclass
class _Parcel:
    """A reply, as far as it is here."""

    to: str
    node: int
    id: str
    progress: float
    missing: dict[str, None] = field(default_factory=dict)  # in order
    contents: dict[str, bytes] = field(default_factory=dict)
    size: int = 0  # bytes

    def add(self, number: str, content: bytes, now: float) -> None:
        del self.missing[number]
        self.contents[number] = content
        self.size += len(content)
        self.progress = now


def opened(parcel: _Parcel, limit: int) -> Reply:
    """The reply, if its objects fit together and together make no more than the limit."""
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

    check_form(parcel.contents, parcel.id, limit)
    try:
        message = inflate_object_from_contents(parcel.id, dict(parcel.contents))
    except Exception as error:  # whatever Flower trips over
        raise Malformed(f"it cannot be read ({harmless(error)})") from None
    if not isinstance(message, Message):
        raise Malformed("it is not a message")
    # Whom it answers and who sent it is what the SuperLink says, not what the message says.
    reply = _whole(message)
    return Reply(
        parcel.to, parcel.node, reply.content, reply.error, reply.malformed, size=parcel.size
    )


def _whole(message: Message) -> Reply:
    to, node = message.metadata.reply_to_message_id, message.metadata.src_node_id
    if message.has_error():
        lines = str(message.error.reason or "").strip().splitlines()
        said = lines[-1].strip() if lines else f"error {message.error.code}"
        return Reply(to, node, error=harmless(said) or "an error without a text")
    if not message.has_content() or not isinstance(message.content, RecordDict):
        return Reply(to, node, malformed="it has no content")
    return Reply(to, node, message.content)


def check_form(contents: Mapping[str, bytes], root: str, limit: int) -> None:
    """Refuse objects that do not fit together as Flower's do, or that would unfold to more than
    the limit: the same piece may be named in an array a million times."""
    heads = {number: _head(content, len(contents)) for number, content in contents.items()}
    # As Python's objects, what is no array takes many times its bytes.
    plain = sum(
        start if kind == "ArrayChunk" else len(contents[number])
        for number, (kind, _, start) in heads.items()
    )
    if plain > NUMBERS + EACH * len(contents):
        raise Malformed(f"it has {plain} bytes that are no array")
    unfolded = 0
    seen: set[str] = set()
    row = [(root, {"Message"})]
    while row:
        number, allowed = row.pop()
        if number not in heads:
            raise Malformed("a part of it is not there")
        kind, children, _ = heads[number]
        if kind not in allowed:
            raise Malformed(f"it has {harmless(kind, 40)} where that cannot be")
        if number in seen:
            continue
        seen.add(number)
        if kind == "Array":
            unfolded += _unfolded(contents, heads, number)
        if unfolded > limit:
            raise Malformed(f"it would unfold to more than the {limit} bytes that it may have")
        row += [(child, BELOW[kind]) for child in children]


_Head = tuple[str, list[str], int]


def _head(content: bytes, objects: int) -> _Head:
    """Kind, children and where the body begins."""
    end = content.find(b"\0")
    if content.count(b",", 0, max(end, 0)) > objects:
        raise Malformed("a part of it has more parts than there are")
    try:
        kind, children, _ = content[: max(end, 0)].decode("ascii").split(" ")
    except ValueError:
        raise Malformed("a part of it has no head") from None
    return kind, children.split(",") if children else [], end + 1


def _unfolded(contents: Mapping[str, bytes], heads: Mapping[str, _Head], number: str) -> int:
    """How many bytes an array has once its pieces are put together."""
    _, children, start = heads[number]
    sizes = [len(contents[child]) - heads[child][2] if child in heads else 0 for child in children]
    try:
        pieces = json.loads(contents[number][start:])["arraychunk_ids"]
        if any(type(piece) is not int or piece < 0 for piece in pieces):
            raise ValueError
        return sum(sizes[piece] for piece in pieces)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        raise Malformed("an array of it cannot be read") from None


def _ids(tree: Any, most: int) -> Iterator[str]:
    """All objects of a tree, at most one more than is allowed."""
    row, count = [tree], 0
    while row and count <= most:
        node = row.pop()
        count += 1
        yield node.object_id
        row += node.children


class TooLarge(Exception):
    """The SuperLink is about to hand out something that no reply can be."""


def _client_of(grid: Grid, limit: int) -> Any:
    """The grid's line to the SuperLink, which now hangs up on what is too large; None if the grid
    has none. It is not a public part of Flower: tests/flower/test_private.py looks after it."""
    client = getattr(grid, "_runtime_client", None)
    if client is None or not all(
        hasattr(client, name) for name in ("PullMessages", "PullObject", "ConfirmMessageReceived")
    ):
        return None

    def look(response: Any) -> None:
        length = response.headers.get("content-length", "0")
        if response.url.path.endswith("/pull-object") and int(length) > limit + NUMBERS:
            response.close()
            raise TooLarge(f"it is larger than the {limit} bytes that it may have")

    line = getattr(client, "_client", None)
    if line is not None:
        line.event_hooks = {**line.event_hooks, "response": [look]}
    return client

"""What a gateway lets nodes say: answers, in their own names, made of what is theirs.

A SuperLink knows a call's node by its key, but it does not hold the message in the call against
that: a node could write to another one in the server's name. Nor does it know an object before it
has its content: the first who announces one says what hangs below it, and a later letter of the
server that holds it fails.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

SUPERLINK = 1  # the node in whose name the server writes
LENGTH = 64  # of an object's id
REMEMBERED = 200_000  # objects of letters; they take some 40 MiB


class Letters:
    """The objects of which the server's last letters were made."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self.most = most
        self._below: OrderedDict[bytes, bytes] = OrderedDict()

    def sent(self, answer: bytes) -> None:
        """Take note of the letters in a SuperLink's answer to a node."""
        from flwr.proto.fleet_pb2 import PullMessagesResponse

        found = _read(PullMessagesResponse, answer)
        for number, below in _objects(found.message_object_trees if found else ()):
            self._below[number] = below
            self._below.move_to_end(number)
        while len(self._below) > self.most:
            self._below.popitem(last=False)

    def wrong(self, call: bytes) -> str | None:
        """What is wrong with the answer that a node announces, if anything."""
        from flwr.proto.fleet_pb2 import PushMessagesRequest

        request = _read(PushMessagesRequest, call)
        if request is None:
            return "what is no message"
        if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
            return "not one message"
        about = request.messages_list[0].metadata
        if not about.reply_to_message_id or about.dst_node_id != SUPERLINK:
            return "a message that is no answer"
        if about.src_node_id != request.node.node_id:
            return "an answer in another's name"
        # Very many short ones would keep us busy: this ends at the first.
        if any(len(tree.object_id) != LENGTH for tree in _all(request.message_object_trees)):
            return "an answer of what is no object"
        for number, below in _objects(request.message_object_trees):
            if self._below.get(number, below) != below:
                return "an answer with the server's objects, but not as they are"
        return None


def _read(kind: Any, content: bytes) -> Any:
    """A record of Flower's protocol; None for anything else, such as the text of an error."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        return kind.FromString(content)
    except DecodeError:
        return None


def _objects(trees: Any) -> Iterator[tuple[bytes, bytes]]:
    """All objects, each with what stands for those below it."""
    for tree in _all(trees):
        below = "".join(sorted(child.object_id for child in tree.children))
        yield tree.object_id.encode(), hashlib.sha256(below.encode()).digest()[:16]


def _all(trees: Any) -> Iterator[Any]:
    """One after another: what is not looked at costs nothing."""
    for tree in trees:
        yield tree
        yield from _all(tree.children)

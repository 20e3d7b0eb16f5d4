"""Replies are fetched object by object, up to a limit, and never believed."""

from __future__ import annotations

import json
import random
import tracemalloc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

import flower.fake_grid  # noqa: F401, as it gives this process an identity
import srpfl
import tiny
from srpfl.algorithms.base import expected_reply
from srpfl.core.slots import packed
from srpfl.flower.parcels import HALF, Limit, Malformed, Parcels, check_form
from srpfl.flower.server import largest_reply
from srpfl.flower.wire import pack

LIMIT = Limit(bytes=1 << 20, objects=50)


class Line:
    """What Flower's grid has to the SuperLink, with replies of our own."""

    def __init__(self) -> None:
        self.trees: dict[str, tuple[Any, Any]] = {}
        self.contents: dict[str, bytes] = {}
        self.away: set[str] = set()
        self.confirmed: list[str] = []

    def add(self, to: str, message: Message) -> str:
        objects = get_all_nested_objects(message)
        self.contents |= {number: thing.deflate() for number, thing in objects.items()}
        meta = SimpleNamespace(reply_to_message_id=to, src_node_id=7, message_id=message.object_id)
        self.trees[to] = (SimpleNamespace(metadata=meta), get_object_tree(message))
        return message.object_id

    def PullMessages(self, request: Any) -> Any:
        found = [self.trees.pop(number) for number in request.message_ids if number in self.trees]
        return SimpleNamespace(
            messages_list=[message for message, _ in found],
            message_object_trees=[tree for _, tree in found],
        )

    def PullObject(self, request: Any) -> Any:
        number = request.object_id
        return SimpleNamespace(
            object_found=number in self.contents,
            object_available=number not in self.away,
            object_content=self.contents.get(number, b""),
        )

    def ConfirmMessageReceived(self, request: Any) -> None:
        self.confirmed.append(request.message_object_id)


def answer(**values: Any) -> Message:
    arrays = ArrayRecord({"w": Array(np.arange(6, dtype=np.float32))})
    content = RecordDict({"answer": ConfigRecord({"loss": 0.5, **values}), "sent": arrays})
    asked = Message(RecordDict(), 7, "train")
    asked.metadata.__dict__["_message_id"] = "m"
    return Message(content, reply_to=asked)


def parcels(line: Line, now: Any = lambda: 0.0, limit: Limit = LIMIT) -> Parcels:
    from flwr.proto.node_pb2 import Node

    run = SimpleNamespace(run_id=1)
    grid: Any = SimpleNamespace(_runtime_client=line, _run=run, node=Node(node_id=1))
    return Parcels(grid, limit=limit, now=now)


def test_a_good_reply_comes_whole() -> None:
    line = Line()
    number = line.add("a", answer())
    [reply] = parcels(line).pull(["a", "b"])
    assert reply.to == "a"
    assert reply.content is not None
    assert reply.content["sent"]["w"].numpy().tolist() == list(range(6))
    assert line.confirmed == [number]


def test_a_half_uploaded_reply_holds_nobody_up_and_is_given_up() -> None:
    line, time = Line(), [0.0]
    line.add("half", answer(a=1))
    missing = next(n for n, c in line.contents.items() if c.startswith(b"ArrayChunk"))
    line.away.add(missing)
    line.add("whole", answer(a=2))
    line.contents["other"] = b""
    waiting = parcels(line, now=lambda: time[0])
    line.away.add(missing)
    del line.trees["whole"]
    assert waiting.pull(["half"]) == []
    line.away.clear()
    line.add("whole", answer(a=2))
    line.away.add(missing)
    # The second one has the same piece, so that it waits too; one with another piece does not.
    other = Message(RecordDict({"answer": ConfigRecord({"a": 3})}), reply_to=answer())
    line.add("small", other)
    assert [reply.to for reply in waiting.pull(["half", "small"])] == ["small"]
    time[0] = HALF + 1
    [reply] = waiting.pull(["half"])
    assert "uploaded by half" in reply.error


def test_what_is_larger_than_an_answer_is_refused_unread() -> None:
    line = Line()
    line.add("a", answer(text="x" * 2000))
    [reply] = parcels(line, limit=Limit(bytes=1000)).pull(["a"])
    assert "larger than the 1000 bytes" in reply.malformed
    assert reply.content is None


def test_an_answer_of_many_tiny_objects_is_refused_without_a_call_for_each() -> None:
    """Each costs a call, and while they are fetched everybody waits."""
    line, calls = Line(), list[str]()
    many = answer()
    many.content["more"] = ArrayRecord({str(n): Array(np.full(1, n)) for n in range(200)})
    line.add("a", many)
    fetched = line.PullObject

    def counted(request: Any) -> Any:
        calls.append(request.object_id)
        return fetched(request)

    line.PullObject = counted  # type: ignore[method-assign]
    [reply] = parcels(line).pull(["a"])
    assert "more than the 50 objects" in reply.malformed
    assert not calls
    assert len(line.confirmed) == 1


@pytest.mark.parametrize("model", [tiny.model(), srpfl.models.LeNet5(classes=10)])
def test_the_limit_is_that_of_the_largest_honest_answer(model: torch.nn.Module) -> None:
    """With a gradient beside it."""
    parts = srpfl.FedRep().split(model)
    replies = expected_reply(srpfl.FedRep(), parts)
    line = Line()
    everything = answer()
    everything.content["sent"] = pack(packed(parts.shared, {"gradient": parts.shared}))
    line.add("a", everything)
    allowed = largest_reply(replies, parts.shared)
    [reply] = parcels(line, limit=allowed).pull(["a"])
    assert reply.content is not None
    assert allowed.objects < 4 * len(line.contents) + 100


def test_an_array_that_would_unfold_to_terabytes_is_refused() -> None:
    line = Line()
    number = line.add("a", answer())
    array = next(n for n, c in line.contents.items() if c.startswith(b"Array "))
    head, body = line.contents[array].split(b"\0", 1)
    body = json.dumps({**json.loads(body), "arraychunk_ids": [0] * 50_000}).encode()
    line.contents[array] = head + b"\0" + body
    with pytest.raises(Malformed, match="unfold"):
        check_form(line.contents, number, LIMIT.bytes)


def test_a_thousand_damaged_replies_raise_nothing() -> None:
    rng, damaged = random.Random(0), 0
    for trial in range(1000):
        line = Line()
        line.add("a", answer(trial=trial))
        for number in rng.sample(sorted(line.contents), 2):
            content = bytearray(line.contents[number])
            for _ in range(rng.randrange(1, 6)):
                content[rng.randrange(len(content))] = rng.randrange(256)
            line.contents[number] = bytes(content)
        [reply] = parcels(line).pull(["a"])
        assert (reply.content is None) != (not (reply.malformed or reply.error))
        damaged += bool(reply.malformed)
    assert damaged > 500


def test_a_grid_that_raises_for_one_reply_still_gives_the_others() -> None:
    class Grid:
        def pull_messages(self, ids: list[str]) -> list[Message]:
            if "bad" in ids:
                raise ValueError("malformed npz")
            return [answer()] if ids == ["m"] else []

    grid: Any = Grid()
    replies = Parcels(grid, limit=LIMIT).pull(["m", "bad"])
    assert [(reply.to, bool(reply.malformed)) for reply in replies] == [("m", False), ("bad", True)]


def test_another_node_cannot_push_an_answer_aside() -> None:
    """Both come, each with its node's name: who was asked is known elsewhere."""
    line = Line()
    line.add("a", answer())
    line.add("b", answer(loss=2.0))
    forged = line.trees["b"][0].metadata
    forged.reply_to_message_id, forged.src_node_id = "a", 9
    replies = parcels(line).pull(["a", "b"])
    assert {(reply.to, reply.node) for reply in replies} == {("a", 7), ("a", 9)}


def plain_objects(many: int) -> dict[str, bytes]:
    """A reply whose many small records would take far more memory than bytes."""
    body = b"\x0a\x00" * 100_000
    record = b"ConfigRecord  %d\0" % len(body) + body
    names = [f"{number:064x}" for number in range(many)]
    root = f"Message {'f' * 64} 0".encode() + b"\0"
    inner = f"RecordDict {','.join(names)} 0".encode() + b"\0"
    return {"e" * 64: root, "f" * 64: inner, **dict.fromkeys(names, record)}


@pytest.mark.parametrize(
    "contents",
    [plain_objects(20), {"e" * 64: b"Message " + b"," * 1_000_000 + b" 0\0"}],
    ids=["records", "children"],
)
def test_what_is_no_array_is_bounded_as_a_whole(contents: dict[str, bytes]) -> None:
    """Whatever the model's size: each object alone would pass."""
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match=r"that are no array|more parts than there are"):
            check_form(contents, "e" * 64, 1 << 30)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()

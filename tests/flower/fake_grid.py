"""Flower's grid and nodes in this process, on a virtual clock: a run takes milliseconds.

A node works through its messages one by one and takes the time that the test says. What is
private to Flower is here and only here (see test_private.py): a process's identity, without which
no message can be made, and a message's id, which the grid gives it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

SUPERLINK = 1  # the node in whose name the SuperLink answers
LOST = 58.0  # seconds until Flower notices that a node was killed


@dataclass
class FakeNode:
    """A node: which client it is, how long it takes, and what it does to its answers."""

    app: ClientApp
    config: dict[str, Any]
    seconds: Callable[[str], float] = lambda kind: 1.0
    mangle: Callable[[Message], Message] = lambda reply: reply
    budget: float | None = None  # real seconds, instead of what the server allows
    free_at: float = 0.0
    received: list[str] = field(default_factory=list)
    online: bool = True
    state: RecordDict = field(default_factory=RecordDict)  # Flower keeps it from letter to letter


class FakeGrid(Grid):
    """Only what the transport uses; the rest says so."""

    def __init__(self) -> None:
        self.time = 0.0
        self.nodes: dict[int, FakeNode] = {}
        self._work: list[tuple[float, int, Message]] = []  # when it is done, who, what
        self._replies: dict[str, Message] = {}
        self._count = 0
        self.at: list[tuple[float, Callable[[], None]]] = []  # things that happen on the way

    def add(self, node_id: int, node: FakeNode) -> None:
        self.nodes[node_id] = node

    def kill(self, node_id: int) -> None:
        """Like kill -9: Flower lists the node for a while, then answers in its stead."""
        lost = [entry for entry in self._work if entry[1] == node_id]
        self._work = [entry for entry in self._work if entry[1] != node_id]
        self.nodes[node_id].app = None  # type: ignore[assignment]

        def noticed() -> None:
            self.nodes[node_id].online = False
            for _, _, message in lost:
                reply = Message(Error(5, "node unavailable"), reply_to=message)
                reply.metadata.__dict__["_src_node_id"] = SUPERLINK
                self._replies[message.metadata.message_id] = reply

        self.at.append((self.time + LOST, noticed))

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        due = sorted((entry for entry in self.at if entry[0] <= self.time), key=lambda e: e[0])
        self.at = [entry for entry in self.at if entry[0] > self.time]
        for _, happen in due:
            happen()

    def get_node_ids(self) -> Iterable[int]:
        return [number for number, node in self.nodes.items() if node.online]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            self._count += 1
            message.metadata.__dict__["_message_id"] = f"m{self._count}"
            node = self.nodes[message.metadata.dst_node_id]
            node.received.append(message.metadata.message_type)
            seconds = node.seconds(message.metadata.message_type) * _part(message)
            node.free_at = max(node.free_at, self.time) + seconds
            self._work.append((node.free_at, message.metadata.dst_node_id, message))
            ids.append(message.metadata.message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        done = sorted((w for w in self._work if w[0] <= self.time), key=lambda w: w[0])
        self._work = [work for work in self._work if work[0] > self.time]
        for _, number, message in done:
            reply = self._answer(number, message)
            if reply is not None:  # else it was lost on the way
                self._replies[message.metadata.message_id] = reply
        found = [self._replies.pop(i) for i in list(message_ids) if i in self._replies]
        return found[::-1]  # Flower promises no order

    def _answer(self, number: int, message: Message) -> Message | None:
        node = self.nodes[number]
        if node.budget is not None and "assignment" in message.content.config_records:
            message.content.config_records["assignment"]["budget"] = node.budget
        context = Context(1, number, node.config, node.state, {})
        try:
            return node.mangle(node.app(message, context))
        except Exception:
            return Message(Error(2, traceback.format_exc()), reply_to=message)

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, *args: Any, **kwargs: Any) -> Iterable[Message]:
        raise NotImplementedError("it waits for everyone")


def _part(message: Message) -> float:
    """Of its local work that a node is to do."""
    told = message.content.config_records.get("assignment")
    return float(told.get("part", 1.0)) if told else 1.0  # type: ignore[arg-type]

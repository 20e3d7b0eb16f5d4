"""Who is there: Flower's nodes, which come and go, and the clients that they are.

A node is asked once who it is. Its client's number is the one that the operator configured, or
the next free one for a name; the run folder keeps the numbers, so that a client has the same one
after a restart of the server.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from flwr.app import Message

from srpfl.checkpoint import write_text
from srpfl.flower.events import Events

FILE = "clients.json"
TRIES = 3  # a node that cannot say who it is is asked so often


class Numbers:
    """Clients' names and their numbers, 0 to M - 1."""

    def __init__(self, population: int, folder: Path | None = None) -> None:
        self.population = population
        self.path = folder / FILE if folder is not None else None
        self.by_name: dict[str, int] = {}
        if self.path is not None and self.path.exists():
            self.by_name = json.loads(self.path.read_text())

    def of(self, name: str) -> int | None:
        """The client's number, a new one where needed; None if all are taken."""
        if name in self.by_name:
            return self.by_name[name]
        free = sorted(set(range(self.population)) - set(self.by_name.values()))
        if name.isdecimal():
            free = [number for number in free if number == int(name)]
        if not free:
            return None
        self.by_name[name] = free[0]
        if self.path is not None:
            write_text(self.path, json.dumps(self.by_name, indent=2) + "\n")
        return free[0]


class Roll:
    """The nodes that are online, and which client each of them is."""

    def __init__(self, numbers: Numbers, events: Events) -> None:
        self.numbers, self.events = numbers, events
        self.node_of: dict[int, int] = {}  # by client
        self._met: set[int] = set()
        self._doubles: dict[int, str] = {}  # nodes that claim to be a client which is there already
        self._failures: Counter[int] = Counter()

    def update(self, online: set[int], round: int) -> list[int]:
        """Take note of who is online; the nodes to be asked who they are come back."""
        for client, node in list(self.node_of.items()):
            if node not in online:
                del self.node_of[client]
                self.events.note("left", f"node {node}", client=client, round=round)
        self._met &= online
        self._doubles = {node: name for node, name in self._doubles.items() if node in online}
        for node, name in list(self._doubles.items()):
            if self.numbers.of(name) not in self.node_of:
                del self._doubles[node]
                self.meet(node, name, round)
        new = sorted(online - self._met)
        self._met |= online
        return new

    def hear(self, node: int, reply: Message, round: int) -> None:
        """A node has said who it is, or that it cannot."""
        if reply.has_error():
            self.events.note("failed", f"node {node}: {reason(reply)}", round=round)
            self._failures[node] += 1
            if self._failures[node] < TRIES:
                self._met.discard(node)
            return
        answer = reply.content.config_records.get("answer")
        name = None if answer is None else answer.get("name")
        if not isinstance(name, str) or not name:
            self.events.note("refused", f"node {node} does not say who it is", round=round)
            return
        if node in self._met:
            self.meet(node, name, round)

    def meet(self, node: int, name: str, round: int) -> None:
        number = self.numbers.of(name)
        if number is None:
            why = f"node {node} is '{name}', and this run is for {self.numbers.population} clients"
            self.events.note("refused", why, round=round)
        elif number in self.node_of:
            # It may be a restarted node whose old self Flower still believes in for a minute.
            self._doubles[node] = name
            why = f"node {node} claims to be a client that is there already"
            self.events.note("waits", why, client=number, round=round)
        else:
            self.node_of[number] = node
            self.events.note("joined", f"'{name}', node {node}", client=number, round=round)


def reason(reply: Message) -> str:
    """The last line of an error's text."""
    lines = (reply.error.reason or "").strip().splitlines()
    return lines[-1].strip() if lines else f"error {reply.error.code}"

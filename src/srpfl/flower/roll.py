"""Who is there: Flower's nodes, which come and go, and the clients that they are.

A node is asked once who it is. Its clients' numbers are those that the operator configured, or the
next free ones for names; the run folder keeps them, so that a client has the same number after a
restart of the server. Where nodes are authenticated a name belongs to the key that first came with
it: Flower gives a key the same node id for ever.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from srpfl.errors import RunFolderError
from srpfl.flower.checks import Introduction, Refused, Sizes, read_introduction
from srpfl.flower.events import Events
from srpfl.flower.parcels import Reply
from srpfl.flower.texts import harmless
from srpfl.flower.wire import VERSION
from srpfl.runs.files import write_text

FILE = "clients.json"
TRIES = 3  # a node that cannot say who it is is asked so often


class Numbers:
    """Clients' names, their numbers, 0 to M - 1, and the nodes that they came with."""

    def __init__(self, population: int, folder: Path | None = None) -> None:
        self.population = population
        self.path = folder / FILE if folder is not None else None
        self.by_name: dict[str, int] = {}
        self.node_of: dict[str, int] = {}  # by name
        self.names_of: dict[int, set[str]] = {}  # by node
        if self.path is not None and self.path.exists():
            self._read(self.path)
        self._changed = False
        self._taken = set(self.by_name.values())
        self._next = 0

    def of(self, name: str) -> int | None:
        """The client's number, a new one where needed; None if all are taken."""
        if name in self.by_name:
            return self.by_name[name]
        number = int(name) if name.isdecimal() else self._free()
        if number >= self.population or number in self._taken:
            return None
        self.by_name[name] = number
        self._taken.add(number)
        self._changed = True
        return number

    def named(self, number: int) -> str | None:
        """The client that has this number."""
        return next((name for name, of in self.by_name.items() if of == number), None)

    def keep(self, name: str, node: int) -> None:
        """Remember with which node a client came."""
        before = self.node_of.get(name)
        if before == node:
            return
        if before is not None:
            self.names_of[before].discard(name)
        self.names_of.setdefault(node, set()).add(name)
        self.node_of[name] = node
        self._changed = True

    def save(self) -> None:
        if self.path is not None and self._changed:
            kept = {n: {"number": i, "node": self.node_of.get(n)} for n, i in self.by_name.items()}
            write_text(self.path, json.dumps(kept, indent=2) + "\n")
        self._changed = False

    def _free(self) -> int:
        while self._next in self._taken:
            self._next += 1
        return self._next

    def _read(self, path: Path) -> None:
        """Of this version, or of the one that kept nothing but numbers."""
        try:
            kept: dict[str, Any] = json.loads(path.read_text())
            for name, value in kept.items():
                entry = value if isinstance(value, dict) else {"number": value}
                self.by_name[name] = int(entry["number"])
                if entry.get("node") is not None:
                    self.keep(name, int(entry["node"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunFolderError(
                f"{path} is damaged ({error}): restore it, or clients would change their numbers"
            ) from None


class Roll:
    """The nodes that are online, and which clients each of them is."""

    def __init__(
        self,
        numbers: Numbers,
        events: Events,
        *,
        model: str = "",
        authenticated: bool = False,
        users: int = 1,
    ) -> None:
        self.numbers, self.events, self.users = numbers, events, users
        self.model, self.authenticated = model, authenticated
        self.node_of: dict[int, int] = {}  # by client
        self.name_of: dict[int, str] = {}
        self.sizes: dict[int, Sizes] = {}
        self.changed: set[int] = set()  # clients that came or went since one last looked
        self.refusal = ""  # the last one, it explains why nobody is there
        self.untold: dict[int, str] = {}  # why, by node that has not been told
        self._clients: dict[int, set[int]] = {}  # by node
        self._met: set[int] = set()
        self._doubles: dict[tuple[int, str], Sizes] = {}  # claims on a client that is there already
        self._failures: Counter[int] = Counter()

    def update(self, online: set[int], round: int) -> list[int]:
        """Take note of who is online; the nodes to be asked who they are come back."""
        for node in self._clients.keys() - online:
            for client in sorted(self._clients.pop(node)):
                del self.node_of[client]
                self.changed.add(client)
                self.events.note("left", f"node {node}", client=client, round=round)
        self._met &= online
        for (node, name), sizes in list(self._doubles.items()):
            if node not in online:
                del self._doubles[node, name]
            elif self.numbers.of(name) not in self.node_of:
                del self._doubles[node, name]
                self.meet(node, name, sizes, round)
        new = sorted(online - self._met)
        self._met |= online
        return new

    def hear(self, node: int, reply: Reply, round: int) -> None:
        """A node has said who it is, or that it cannot."""
        if reply.error or reply.malformed:
            why = f"node {node}: {reply.error or reply.malformed}"
            self.events.note("failed" if reply.error else "refused", why, round=round)
            self._failures[node] += 1
            if self._failures[node] < TRIES:
                self._met.discard(node)
            return
        try:
            said = read_introduction(reply.content, self.model)
        except Refused as error:
            self._refuse(node, f": {error}", round)
            return
        if node in self._met:
            self._welcome(node, said, round)

    def _welcome(self, node: int, said: Introduction, round: int) -> None:
        if said.version != VERSION:
            why = f"node {node} has srpfl {said.version}, the server {VERSION}"
            self.events.note("other version", why, round=round)
        # It would take the places of others, at once or one after another.
        others = self.numbers.names_of.get(node, set()) - said.clients.keys()
        if (count := len(others) + len(said.clients)) > self.users:
            before = f" with '{harmless(min(others))}', which it was before" if others else ""
            self._refuse(
                node,
                f" is {count} clients{before}, and a node may be {self.users}: "
                f"Experiment(users={count}) allows it",
                round,
            )
            return
        for name, sizes in said.clients.items():
            self.meet(node, name, sizes, round)

    def meet(self, node: int, name: str, sizes: Sizes, round: int) -> None:
        before = self.numbers.node_of.get(name)
        if self.authenticated and before not in (None, node):
            self._refuse(
                node,
                f" claims to be '{harmless(name)}', which belongs to the key of node "
                f"{before}: if the machine was replaced, take the entry out of {FILE}",
                round,
            )
            return
        number = self.numbers.of(name)
        if number is None:
            other = self.numbers.named(int(name)) if name.isdecimal() else None
            why = f"this run is for {self.numbers.population} clients"
            if other is not None:
                why = f"that number is client '{harmless(other)}' here: "
                why += "give all clients names, or all of them numbers"
            self._refuse(node, f" is '{harmless(name)}', and {why}", round)
        elif self.node_of.get(number) == node:
            self.sizes[number] = sizes
        elif number in self.node_of:
            # It may be a restarted node whose old self Flower still believes in for a minute.
            self._doubles[node, name] = sizes
            why = f"node {node} claims to be a client that is there already"
            self.events.note("waits", why, client=number, round=round)
        else:
            self.node_of[number], self.name_of[number] = node, name
            self.sizes[number] = sizes
            self._clients.setdefault(node, set()).add(number)
            self.changed.add(number)
            self.numbers.keep(name, node)
            other = ", another node than before" if before not in (None, node) else ""
            why = f"'{harmless(name)}', node {node}{other}"
            self.events.note("joined", why, client=number, round=round)

    def _refuse(self, node: int, why: str, round: int) -> None:
        self.refusal = self.untold[node] = f"node {node}{why}"
        self.events.note("refused", self.refusal, round=round)

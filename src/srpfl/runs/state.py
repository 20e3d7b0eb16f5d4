"""The state of a run as a value: all that a run needs to continue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from srpfl.core.devices import moved
from srpfl.core.means import weighted_mean
from srpfl.core.slots import Slots, packed, unpacked
from srpfl.core.split import Params

ROOM = 1 << 26  # bytes of parts that stay in memory though they are saved
OBJECTS = 600  # bytes that a tensor takes beside its numbers, about


@dataclass(frozen=True)
class Flight:
    """A client at work. What it will answer follows from what it was sent and what it keeps, so it
    is not in here."""

    client: int
    version: int  # the round (from 0) whose shared part it was sent
    began: float  # on the run's clock
    due: float  # when its answer comes; infinity if it never does
    part: float = 1.0  # of the local work, where it does not do all of it
    lost: bool = False  # it leaves when it is due, and never answers


@dataclass(frozen=True)
class State:
    """A server's state between two rounds."""

    round: int  # rounds finished
    computing: float  # time spent waiting for clients, without communication
    shared: Params
    memory: Mapping[str, Any]  # the participation policy's
    participants: tuple[int, ...] = ()  # of the last round
    server: Slots = field(default_factory=dict)  # what the algorithm remembers
    flights: tuple[Flight, ...] = ()  # who is at work, where late answers are kept
    versions: Mapping[int, Params] = field(default_factory=dict)  # what those were sent, packed


class Saved(Protocol):
    """Parts that are kept elsewhere than in memory."""

    def get(self, client: int) -> Params | None: ...

    def __contains__(self, client: int) -> bool: ...

    def __iter__(self) -> Iterator[int]: ...


class ClientParts:
    """Each client's personal part and the slots that it keeps. Those that never took part have the
    initial ones, so what is kept grows with the participants and not with the population.

    What a checkpoint has saved stays in memory as long as there is room for it, and is read from
    the run's folder after that.
    """

    def __init__(
        self,
        personal: Params,
        slots: Slots | None = None,
        *,
        clients: int | None = None,
        room: int = ROOM,
    ) -> None:
        self.initial = packed(personal, slots or {})
        self.clients = clients  # how many there are, where that is known
        self.unsaved: dict[int, Params] = {}  # packed: what changed since the last checkpoint
        self._near: dict[int, Params] = {}  # what was saved or read last, the oldest first
        self._saved: Saved | None = None
        # Every client's weighs the same. Those of one cohort may be views of one stack, which goes
        # when the last of them does: so the oldest go first, even if they were read since.
        weight = sum(value.numel() * value.element_size() for value in self.initial.values())
        self._most = max(1, room // max(1, weight + OBJECTS * len(self.initial)))

    def kept(self, client: int) -> Params:
        """All that a client keeps, packed."""
        found = self.unsaved.get(client) or self._near.get(client)
        if found is None and self._saved is not None:
            found = self._saved.get(client)
            if found is not None:
                self._remember({client: found})
        return self.initial if found is None else found

    def of(self, client: int) -> Params:
        """A client's personal part."""
        return unpacked(self.kept(client))[0]

    def slots_of(self, client: int) -> Slots:
        return unpacked(self.kept(client))[1]

    def put(self, client: int, personal: Params, slots: Slots) -> None:
        if self.initial:  # else there is nothing to keep
            self._near.pop(client, None)
            self.unsaved[client] = packed(personal, slots)

    def saved(self, where: Saved) -> None:
        """From now on they are kept there too."""
        self._saved = where
        for client in self.unsaved:
            self._near.pop(client, None)
        self._remember(self.unsaved)
        self.unsaved = {}

    @property
    def trained(self) -> Mapping[int, Params]:
        """By client, all that those keep who took part, packed."""
        return _Trained(self)

    def took_part(self, client: int) -> bool:
        return client in self.unsaved or (self._saved is not None and client in self._saved)

    def trained_clients(self) -> set[int]:
        return {*self.unsaved, *(self._saved or ())}

    def mean(self, clients: Sequence[int]) -> Params:
        """The mean of some clients' personal parts, or the initial one where there are none."""
        initial, _ = unpacked(self.initial)
        if not clients or not initial:
            return initial
        first, *rest = (self.of(client) for client in sorted(clients))
        return weighted_mean([first, *(moved(each, first) for each in rest)], [1.0] * len(clients))

    def _remember(self, parts: Mapping[int, Params]) -> None:
        self._near |= parts
        for client in list(islice(self._near, max(0, len(self._near) - self._most))):
            del self._near[client]


class _Trained(Mapping[int, Params]):
    """A view of the parts that were trained; each is read when it is looked at."""

    def __init__(self, parts: ClientParts) -> None:
        self._parts = parts

    def __getitem__(self, client: int) -> Params:
        if not self._parts.took_part(client):
            raise KeyError(client)
        return self._parts.kept(client)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._parts.trained_clients()))

    def __len__(self) -> int:
        return len(self._parts.trained_clients())

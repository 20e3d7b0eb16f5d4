"""What a disk may hold after a loss of power, by all that a program did to a folder before it."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Names = dict[int, dict[str, int]]  # by folder, what its names stand for: files and folders
ROOT = 0


@dataclass(frozen=True)
class Named:
    """Names of a folder that changed in one go: a rename is there or not, never by half."""

    folder: int
    changes: dict[str, int | None]


@dataclass(frozen=True)
class Filled:
    """A file's new content."""

    file: int
    data: bytes


@dataclass(frozen=True)
class Synced:
    """The disk was waited for: this file's content, or this folder's names, are there."""

    what: int


@dataclass(frozen=True)
class Promised:
    """A state that the program relies on from here on."""

    round: int


Event = Named | Filled | Synced | Promised


class Journal:
    """All that happens to a folder while it is watched; what was there before is on the disk.

    The folder is looked at before and after each call of the system that changes names or waits
    for the disk, so no write or rename goes unseen, whoever does it.
    """

    CALLS = ("open", "mkdir", "rename", "replace", "unlink", "rmdir")

    def __init__(self, root: Path) -> None:
        self.root, self.events = root, list[Event]()
        self._real: dict[tuple[int, int], int] = {}  # by device and inode, our own number
        self._count = ROOT
        self.names: Names = {}
        self.data: dict[int, bytes] = {}
        self.look()
        self.before = ({folder: dict(n) for folder, n in self.names.items()}, dict(self.data))
        self.events.clear()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in self.CALLS:
                patch.setattr(os, name, self._seen(getattr(os, name)))
            patch.setattr(os, "fsync", self._synced(os.fsync))
            yield
        self.look()

    def promise(self, round: int) -> None:
        self.look()
        self.events.append(Promised(round))

    def look(self) -> None:
        """Note what has changed."""
        names, data = self._there()
        for file, content in data.items():
            if self.data.get(file) != content:
                self.events.append(Filled(file, content))
        for folder, now in names.items():
            self.events += _changes(folder, self.names.get(folder, {}), now)
        self.names, self.data = names, data

    def _there(self) -> tuple[Names, dict[int, bytes]]:
        names, data, real = Names(), dict[int, bytes](), dict[tuple[int, int], int]()

        def number(path: Path) -> int:
            told = path.stat()
            key = (told.st_dev, told.st_ino)
            if key not in self._real:
                self._real[key] = self._count
                self._count += 1
            real[key] = self._real[key]
            return real[key]

        def walk(path: Path) -> int:
            mine = number(path)
            if path.is_dir():
                names[mine] = {entry.name: walk(entry) for entry in sorted(path.iterdir())}
            else:
                data[mine] = path.read_bytes()
            return mine

        walk(self.root)
        self._real = real  # the system gives an inode to another file when it is free again
        return names, data

    def _seen(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def seen(*args: Any, **kwargs: Any) -> Any:
            self.look()
            try:
                return call(*args, **kwargs)
            finally:
                self.look()

        return seen

    def _synced(self, call: Callable[[int], None]) -> Callable[[int], None]:
        def synced(handle: int) -> None:
            self.look()
            call(handle)
            told = os.fstat(handle)
            self.events.append(Synced(self._real[told.st_dev, told.st_ino]))

        return synced


def _changes(folder: int, before: dict[str, int], now: dict[str, int]) -> list[Event]:
    gone = {n: w for n, w in before.items() if n not in now}
    new = {n: w for n, w in now.items() if before.get(n) != w}
    moved = {w: {n: None for n, old in gone.items() if old == w} for w in new.values()}
    left = [n for n, w in gone.items() if w not in moved]
    return [
        *(Named(folder, {n: None}) for n in left),
        *(Named(folder, {**moved[w], n: w}) for n, w in new.items()),
    ]


def promised(events: list[Event]) -> int | None:
    """The round of the last state that a program relied on; None if there was none."""
    return next((e.round for e in reversed(events) if isinstance(e, Promised)), None)


def lose_power(journal: Journal, point: int, target: Path, rng: random.Random) -> None:
    """Fill a folder with what a disk may hold after so many of the events. What was waited for is
    there. Of the rest, some names have not changed yet, and some files are short or hold zeros."""
    events = journal.events[:point]
    safe = {e.what: place for place, e in enumerate(events) if isinstance(e, Synced)}
    names = {folder: dict(there) for folder, there in journal.before[0].items()}
    known, written = dict(journal.before[1]), dict[int, list[bytes]]()
    happened = _luck(len(events), rng)
    for place, event in enumerate(events):
        if isinstance(event, Filled):
            if place < safe.get(event.file, -1):
                known[event.file] = event.data
            else:
                written.setdefault(event.file, []).append(event.data)
        elif isinstance(event, Named):
            there = names.setdefault(event.folder, {})
            if place < safe.get(event.folder, -1) or happened(place):
                _rename(there, event.changes)
    folders = journal.before[0].keys() | {e.folder for e in events if isinstance(e, Named)}
    files = known.keys() | written.keys()

    def build(what: int, path: Path) -> None:
        if what in files:
            path.write_bytes(torn(known.get(what, b""), written.get(what, []), rng))
            return
        path.mkdir()
        for name, inner in names.get(what, {}).items() if what in folders else ():
            build(inner, path / name)

    build(ROOT, target)


def _luck(count: int, rng: random.Random) -> Callable[[int], bool]:
    """Which of the changes that nobody waited for are on the disk: those up to some moment, as
    with a journal, or any of them."""
    if rng.random() < 0.5:
        until = rng.randint(0, count)
        return lambda place: place < until
    share = rng.choice([0.0, 0.2, 0.5, 0.8, 1.0])
    return lambda place: rng.random() < share


def _rename(there: dict[str, int], changes: dict[str, int | None]) -> None:
    for name, what in changes.items():
        for old in [n for n, w in there.items() if w == what]:
            del there[old]  # also a name from which it was moved away unnoticed
        there.pop(name, None)
        if what is not None:
            there[name] = what


def torn(known: bytes, written: list[bytes], rng: random.Random) -> bytes:
    """What a file may hold of which so much is known to be there and the rest was written since."""
    data = rng.choice([known, *written])
    if not data.startswith(known):  # written anew in its place
        known = b""
    cut = rng.choice([len(known), rng.randint(len(known), len(data))])
    rest = rng.choice([b"", data[cut:], bytes(len(data) - cut)])
    return data[:cut] + rest

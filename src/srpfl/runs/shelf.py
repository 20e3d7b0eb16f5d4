"""Which file holds which client's part, for as many clients as there are.

A checkpoint writes one new file with what changed since the last one; for every client the newest
file that has it counts. Two things keep the files few and full, and a checkpoint's work in
proportion to what changed: a file of which others have left more than half behind gives the rest to
the new one, about as many rows as changed; and beyond so many files the one with fewest does too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from srpfl.core.split import Params
from srpfl.errors import RunFolderError
from srpfl.runs.segments import IntArray, Rows, Segment, joined, stacked

FILES = 1000  # more than these are put together
NOWHERE = -1


class Shelf:
    """The clients' parts on disk, as the newest checkpoint has them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hashes: dict[str, str] = {}  # by file, in the order in which they were written
        self._held: dict[int, int] = {}  # by number of the file, its rows
        self._live: dict[int, int] = {}  # and how many of them count
        self._file: NDArray[np.int32] = np.full(0, NOWHERE, dtype=np.int32)  # by client
        self._row: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._segments: dict[int, Segment] = {}

    def get(self, client: int) -> Params | None:
        """A client's part; None where none was ever saved."""
        file = self._where(client)
        if file == NOWHERE:
            return None
        try:
            return self._segment(file).row(int(self._row[client]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunFolderError(
                f"the part of client {client} in {self._path(file)} cannot be read any more "
                f"({error}): go on with the run by --resume, or play it again"
            ) from error

    def __contains__(self, client: int) -> bool:
        return self._where(client) != NOWHERE

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self._file != NOWHERE).tolist())

    def add(
        self, name: str, parts: Mapping[int, Params], write: Callable[[Path, Rows], str]
    ) -> None:
        """Write the parts that changed, and what the new file takes over from others."""
        number = number_of(name)
        changed = stacked(parts)
        rows = joined([changed, *self._taken_over(changed.clients, number)])
        told = write(self.folder / name, rows)
        self._place(number, rows.clients)
        self.hashes = {f: v for f, v in self.hashes.items() if number_of(f) in self._live}
        self.hashes[name] = told
        self._segments.pop(number, None)

    def open(self, hashes: Mapping[str, str], wanted: Params, most: int | None) -> bool:
        """Find the clients of files that are known to be whole; False if they are not of such
        tensors."""
        for name in sorted(hashes, key=number_of):
            if self._path(number_of(name)).name != name:
                raise ValueError(f"{name} is not a name that was given")
            clients = Segment(self.folder / name).clients(wanted)
            if clients is None:
                return False
            if most is not None and len(clients) and clients[-1] >= most:
                raise ValueError(f"{name} has rows of clients that there are not")
            self._place(number_of(name), clients)
            self.hashes[name] = hashes[name]
        return True

    def _taken_over(self, changed: IntArray, number: int) -> Iterator[Rows]:
        """Rows that still count, of files with few of them."""
        live = {**self._live}
        for file, count in self._left(changed):
            live[file] -= count
        few = sorted(live, key=lambda file: (live[file], file))
        taken, most, files = 0, len(changed), sum(map(bool, live.values()))
        for file in few:
            sparse = 2 * live[file] < self._held[file] and taken < most
            if not live[file] or not (sparse or files >= FILES or file == number):
                continue
            files -= 1
            taken += live[file]
            yield self._segment(file).rows(partial(self._counts, file, changed))

    def _counts(self, file: int, changed: IntArray, clients: IntArray) -> NDArray[np.bool_]:
        """Which of a file's clients have their part there, and it does not change now."""
        there: NDArray[np.bool_] = (self._file[clients] == file) & ~np.isin(clients, changed)
        return there

    def _place(self, number: int, clients: IntArray) -> None:
        """Let a file's rows count, and no others of the same clients."""
        end = int(clients[-1]) + 1 if len(clients) else 0
        if end > len(self._file):
            more = max(end, 2 * len(self._file)) - len(self._file)
            self._file = np.concatenate([self._file, np.full(more, NOWHERE, dtype=np.int32)])
            self._row = np.concatenate([self._row, np.zeros(more, dtype=np.int32)])
        for file, count in self._left(clients):
            self._live[file] -= count
        self._file[clients] = number
        self._row[clients] = np.arange(len(clients))
        self._held[number] = self._live[number] = len(clients)
        for file in [file for file, count in self._live.items() if not count]:
            del self._live[file], self._held[file]
            self._segments.pop(file, None)

    def _left(self, clients: IntArray) -> Iterator[tuple[int, int]]:
        """The files that these clients leave, and how many leave each."""
        before = self._file[clients[clients < len(self._file)]]
        files, counts = np.unique(before[before != NOWHERE], return_counts=True)
        return zip(files.tolist(), counts.tolist(), strict=True)

    def _where(self, client: int) -> int:
        return int(self._file[client]) if client < len(self._file) else NOWHERE

    def _segment(self, file: int) -> Segment:
        if file not in self._segments:
            self._segments[file] = Segment(self._path(file))
        return self._segments[file]

    def _path(self, file: int) -> Path:
        return self.folder / f"{file:06d}.safetensors"


def number_of(name: str) -> int:
    """The number of a file, which is the round of the checkpoint that wrote it."""
    return int(name.partition(".")[0])

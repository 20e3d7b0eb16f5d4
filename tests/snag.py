"""Data at which a process hangs once, in mid-round, so that a test can kill it there."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tiny
from srpfl.data.base import Samples, Transform


@dataclass(frozen=True)
class Snag:
    """The tiny data. A process that loads a client of these to train it writes to the file who it
    is, and stops there; the process that made this and those on some nodes of Ray do not. Once."""

    file: Path
    clients_that_hang: tuple[int, ...] = (2, 3, 4, 5)  # an engine looks at 0 and 1 when it is made
    spared: tuple[str, ...] = ()  # nodes, by their ids
    inner: Any = field(default_factory=tiny.data)
    us: int = field(default_factory=os.getpid)
    transform: Transform = Transform()

    @property
    def clients(self) -> int:
        return int(self.inner.clients)

    @property
    def classes(self) -> int:
        return int(self.inner.classes)

    def size(self, client: int) -> int:
        return int(self.inner.size(client))

    def train(self, client: int) -> Samples:
        if client in self.clients_that_hang and os.getpid() != self.us:
            self._hang()
        return self.inner.train(client)

    def test(self, client: int) -> Samples:
        return self.inner.test(client)

    def _hang(self) -> None:
        import ray

        node = ray.get_runtime_context().get_node_id()
        if node in self.spared or self.file.exists():
            return
        draft = self.file.with_suffix(".draft")
        draft.write_text(f"{os.getpid()} {node}")
        draft.rename(self.file)
        time.sleep(600)


def caught(file: Path, limit: float = 60.0) -> tuple[int, str]:
    """Wait until somebody hangs; its process and its node."""
    until = time.monotonic() + limit
    while not file.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"nobody hung within {limit} s")
        time.sleep(0.05)
    process, _, node = file.read_text().partition(" ")
    return int(process), node

"""What a round costs with everyone asked, beside the training: python benchmarks/everyone.py
[--json FILE].

An engine that answers at once leaves only the round loop, the records and the checkpoints. Counted
are the calls of Python's functions and the bytes that are written, which are the same every time,
and measured is processor time; each per round and per client, so that linear means: the same at
every size.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import srpfl
from srpfl.core.slots import Reply
from srpfl.data.base import Samples, Transform
from srpfl.engine.base import Job, Local, Score

SIZES, ROUNDS = (1000, 2000, 5000, 10_000), 4


@dataclass(frozen=True)
class Few:
    """Clients with two samples each."""

    clients: int
    classes: int = 2
    transform: Transform = Transform()

    def size(self, client: int) -> int:
        return 2

    def train(self, client: int) -> Samples:
        return Samples(np.full((2, 4), client, dtype=np.float32), np.array([0, 1]))

    def test(self, client: int) -> Samples:
        return self.train(client)


class Echo:
    """An engine that trains nothing."""

    def train(self, jobs: Sequence[Job]) -> list[list[Local]]:
        return [
            [
                Local(client, Reply(job.shared, personal), 1.0, 2)
                for client, personal in zip(job.clients, job.personal, strict=True)
            ]
            for job in jobs
        ]

    def test(self, jobs: Sequence[Job]) -> list[list[Score]]:
        return [[Score(client, (1.0,), 2.0) for client in job.clients] for job in jobs]


@dataclass
class Cost:
    """Of one round."""

    calls: float = 0.0
    cpu_s: float = 0.0
    bytes: float = 0.0
    files: float = 0.0


def play(clients: int, folder: Path | None, rounds: int) -> None:
    srpfl.simulate(
        data=Few(clients),
        model=srpfl.models.MLP(4, (4,), classes=2),
        algorithm=srpfl.FedRep(head_epochs=1, body_epochs=1),
        participation=srpfl.Everyone(),
        engine=Echo(),
        rounds=rounds,
        evaluate_every=0,
        out=folder,
        sync=False,
    )


def calls(clients: int, folder: Path | None, rounds: int) -> int:
    """How many functions are called, Python's and C's."""
    count = 0

    def called(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        play(clients, folder, rounds)
    finally:
        sys.setprofile(None)
    return count


def cpu(clients: int, folder: Path | None, rounds: int) -> float:
    """The least of three times: what else a machine does only adds to it."""
    taken = []
    for attempt in range(3):
        place = folder and folder.with_name(f"{folder.name}-{attempt}")
        began = time.process_time()
        play(clients, place, rounds)
        taken.append(time.process_time() - began)
    return min(taken)


def cost(clients: int, *, kept: bool) -> Cost:
    """Of a round between the second and the last: what a run begins with is not in it."""
    with tempfile.TemporaryDirectory() as place:

        def per_round(measure: Any, name: str) -> float:
            some, more = (
                measure(clients, Path(place) / f"{name}-{rounds}" if kept else None, rounds)
                for rounds in (1, 1 + ROUNDS)
            )
            return float(more - some) / ROUNDS

        found = Cost(per_round(calls, "calls"), per_round(cpu, "cpu"))
        if kept:
            files = [each for each in (Path(place) / "calls-1").rglob("*") if each.is_file()]
            found.bytes, found.files = sum(each.stat().st_size for each in files), len(files)
    return found


def row(clients: int) -> dict[str, Any]:
    loop, both = cost(clients, kept=False), cost(clients, kept=True)
    told = {
        "clients": clients,
        "loop_calls_per_client": round(loop.calls / clients, 2),
        "folder_calls_per_client": round((both.calls - loop.calls) / clients, 2),
        "loop_us_per_client": round(1e6 * loop.cpu_s / clients, 2),
        "folder_us_per_client": round(1e6 * (both.cpu_s - loop.cpu_s) / clients, 2),
        "bytes_per_client": round(both.bytes / clients, 1),
        "files": both.files,
    }
    print("  ".join(f"{name} {value:,}" for name, value in told.items()), flush=True)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        play(10, Path(place) / "run", 1)  # imports what is needed
    rows = [row(clients) for clients in SIZES]
    if told.json:
        told.json.write_text(json.dumps({"rounds": ROUNDS, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()

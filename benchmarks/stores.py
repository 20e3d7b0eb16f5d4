"""Where to keep the personal parts of many clients: python benchmarks/stores.py [--json FILE].

Three embedded stores take the same writes and reads: so many clients in all, 1,000 of them changed
by each checkpoint and 1,000 others read before it. SQLite and LMDB need each value in two
versions, because a run keeps two checkpoints; safetensors files are written once and only named
again. LMDB is not needed by srpfl: pip install lmdb.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

SHAPES = {"head.weight": (10, 32), "head.bias": (10,)}
SIZE = 4 * (10 * 32 + 10)
CHANGED = 1000

Rows = dict[int, bytes]
Store = tuple[Callable[[int, Rows], None], Callable[[list[int]], list[bytes]]]


@contextmanager
def sqlite(folder: Path) -> Iterator[Store]:
    base = sqlite3.connect(folder / "parts.db", isolation_level=None)
    base.execute("PRAGMA journal_mode=WAL")
    base.execute("PRAGMA synchronous=NORMAL")
    base.execute(
        "CREATE TABLE parts (client INT, round INT, sum BLOB, data BLOB, "
        "PRIMARY KEY (client, round)) WITHOUT ROWID"
    )

    def save(round: int, rows: Rows) -> None:
        base.execute("BEGIN")
        base.executemany(
            "INSERT INTO parts VALUES (?, ?, ?, ?)",
            ((c, round, hashlib.sha256(d).digest(), d) for c, d in rows.items()),
        )
        base.executemany(
            "DELETE FROM parts WHERE client = ? AND round < (SELECT max(round) FROM parts "
            "WHERE client = ? AND round < ?)",
            ((c, c, round) for c in rows),
        )
        base.execute("COMMIT")

    def read(clients: list[int]) -> list[bytes]:
        ask = "SELECT data FROM parts WHERE client = ? ORDER BY round DESC LIMIT 1"
        return [base.execute(ask, (c,)).fetchone()[0] for c in clients]

    yield save, read
    base.close()


@contextmanager
def lmdb(folder: Path) -> Iterator[Store]:
    import lmdb as library

    base: Any = library.open(str(folder), map_size=1 << 36, sync=False, max_dbs=1)

    def save(round: int, rows: Rows) -> None:
        with base.begin(write=True) as change:
            for client, data in rows.items():
                key = client.to_bytes(8, "big")
                old = change.get(key + b"1")
                if old is not None:
                    change.put(key + b"0", old)
                change.put(key + b"1", hashlib.sha256(data).digest() + data)

    def read(clients: list[int]) -> list[bytes]:
        with base.begin() as view:
            return [view.get(c.to_bytes(8, "big") + b"1")[32:] for c in clients]

    yield save, read
    base.close()


@contextmanager
def safetensors(folder: Path) -> Iterator[Store]:
    place: dict[int, tuple[int, int]] = {}

    def save(round: int, rows: Rows) -> None:
        clients = sorted(rows)
        stacked = torch.frombuffer(bytearray(b"".join(rows[c] for c in clients)), dtype=torch.float)
        stacked = stacked.view(len(clients), -1)
        weight, bias = stacked[:, :320].reshape(-1, 10, 32).clone(), stacked[:, 320:].clone()
        path = folder / f"{round:06d}.safetensors"
        tensors = {"head.weight": weight, "head.bias": bias, "clients": torch.tensor(clients)}
        save_file(tensors, path)
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256")
        place.update({c: (round, row) for row, c in enumerate(clients)})

    def read(clients: list[int]) -> list[bytes]:
        found: dict[int, bytes] = {}
        by_file: dict[int, list[int]] = {}
        for client in clients:
            by_file.setdefault(place[client][0], []).append(client)
        for round, mine in by_file.items():
            with safe_open(folder / f"{round:06d}.safetensors", framework="pt") as file:
                for client in mine:
                    row = place[client][1]
                    parts = [file.get_slice(name)[row : row + 1] for name in SHAPES]
                    found[client] = b"".join(part.numpy().tobytes() for part in parts)
        return [found[client] for client in clients]

    yield save, read


STORES = {"sqlite": sqlite, "lmdb": lmdb, "safetensors": safetensors}


def measure(name: str, population: int, repeats: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    folder = Path(tempfile.mkdtemp(prefix="stores-"))
    try:
        with STORES[name](folder) as (save, read):
            started = time.perf_counter()
            for round, first in enumerate(range(0, population, CHANGED)):
                block = rng.bytes(SIZE * CHANGED)
                save(
                    round,
                    {first + i: block[i * SIZE : (i + 1) * SIZE] for i in range(CHANGED)},
                )
            filled = time.perf_counter() - started
            saves, reads = [], []
            for round in range(population // CHANGED, population // CHANGED + repeats):
                asked = rng.choice(population, CHANGED, replace=False).tolist()
                started = time.perf_counter()
                values = read(asked)
                reads.append(time.perf_counter() - started)
                started = time.perf_counter()
                save(round, dict(zip(asked, values, strict=True)))
                saves.append(time.perf_counter() - started)
            size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    finally:
        shutil.rmtree(folder)
    return {
        "fill_s": filled,
        "save_s": statistics.median(saves),
        "slowest_save_s": max(saves),
        "read_s": statistics.median(reads),
        "disk_per_live_byte": size / (population * SIZE),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--population", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found = {name: measure(name, asked.population, asked.repeats) for name in STORES}
    result = {"population": asked.population, "changed": CHANGED, "cores": os.cpu_count(), **found}
    text = json.dumps(result, indent=1)
    print(text)
    if asked.json:
        asked.json.write_text(text + "\n")


if __name__ == "__main__":
    main()

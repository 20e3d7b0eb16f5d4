"""Folders that are made to take memory, with checksums that fit, and what it takes to open them.

``python tests/runs/hostile.py PLACE RUN...`` does with each of these folders all that one can do
with a run, in one process, and prints by how many bytes the process has grown after each step, at
the most so far.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from runs.test_strangers import in_counts, in_text
from srpfl.runs.seal import seal

ROUNDS = 5  # of the run that is forged
TERABYTE = 1 << 40


def in_every_round(folder: Path, values: dict[str, Any]) -> None:
    """Written as closely as can be."""
    path, before, lines = folder / "rounds.jsonl", "", []
    for line in path.read_text().splitlines():
        told = json.loads(line)
        del told["sum"]
        lines.append(seal(json.dumps({**told, **values}, separators=(",", ":")), before))
        before = lines[-1][-18:-2]
    path.write_text("".join(f"{line}\n" for line in lines))


def empty(limit: int) -> list[Any]:
    """What takes most memory for its bytes."""
    return [{}] * (limit // 3)


def in_all_texts(folder: Path, limit: int) -> None:
    in_every_round(folder, {"decision": {"x": empty(limit // ROUNDS - 2000)}})
    in_counts(folder / "partition.json", lambda told: [[]] * (limit // 16 - 100))
    in_text(folder / "config.json", lambda told: {**told, "x": empty(limit // 6)})
    for state in (folder / "checkpoints").glob("*/state.json"):
        in_text(state, lambda told: {**told, "memory": {"x": empty(limit // 6)}})


def in_arrivals(folder: Path, limit: int) -> None:
    count = (limit // ROUNDS - 2000) // 6
    in_every_round(folder, {"participants": [1] * count, "arrivals": [0.5] * count})


def in_weights(folder: Path, limit: int) -> None:
    """Tensors that say that they are large, with hashes that fit; and files without number."""
    header = {"x": {"dtype": "F32", "shape": [TERABYTE], "data_offsets": [0, 4 * TERABYTE]}}
    text = json.dumps(header).encode()
    large = len(text).to_bytes(8, "little") + text
    endless = (1 << 62).to_bytes(8, "little") + b"{}"
    hashes = {}
    for file in sorted(folder.rglob("*.safetensors")):
        file.write_bytes(large if file.name == "shared.safetensors" else endless)
        hashes[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    for state in (folder / "checkpoints").glob("*/state.json"):
        in_text(state, partial(_with_hashes, hashes=hashes))
    for number in range(2000):
        place = folder / "checkpoints" / f"{100 + number:06d}"
        place.mkdir()
        (place / "state.json").write_text("{}")
        (folder / "personal" / f"{100 + number:06d}.safetensors").write_bytes(b"")


def _with_hashes(told: Any, hashes: dict[str, str]) -> Any:
    mine = {name: hashes[name] for name in told["hashes"]}
    return {**told, "shared": hashes["shared.safetensors"], "hashes": mine}


def in_promises(folder: Path, limit: int) -> None:
    """A population, a run and lines without end, and files larger than any disk that take no room
    on it."""

    def told(config: Any) -> Any:
        return {**config, "data": {**config["data"], "clients": 10**7}, "rounds": 10**7}

    in_text(folder / "config.json", told)
    with (folder / "rounds.jsonl").open("a") as file:
        file.write('{"round":' + "[" * (limit // 4 - 100) + "\n")
    for name in ("evaluations.jsonl", "partition.json", "timing.jsonl"):
        os.truncate(folder / name, TERABYTE)


FORGERIES: list[Callable[[Path, int], None]] = [in_all_texts, in_arrivals, in_weights, in_promises]


def made(whole: Path, place: Path, limit: int) -> Iterator[Path]:
    """A copy of a run for each forgery."""
    for forgery in FORGERIES:
        folder = place / forgery.__name__
        shutil.copytree(whole, folder)
        forgery(folder, limit)
        yield folder


def commands(run: Path, place: Path) -> Iterator[list[str]]:
    """All that one can do with a folder."""
    yield ["report", str(run), "--out", str(place / "report.html")]
    yield ["compare", str(run), "--out", str(place / "compared")]
    yield ["export", str(run), "--out", str(place / "tables")]
    yield ["export", str(run), "--to", "parquet", "--out", str(place / "tables")]
    yield ["export", str(run), "--model", "1", "--out", str(place / "models")]
    yield ["doctor", str(run)]
    yield ["run", "--resume", str(run), "--quiet"]
    yield ["doctor", str(run), "--mend"]


def done(command: list[str]) -> tuple[int, str]:
    """The exit code of a command, and what it says."""
    from srpfl.cli import main

    said = StringIO()
    sys.argv = ["srpfl", *command]
    try:
        with redirect_stdout(said), redirect_stderr(said):
            main()
    except SystemExit as end:
        return int(end.code or 0), said.getvalue()
    return 0, said.getvalue()


def most() -> int:
    """Bytes of this process, at the most so far."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    place, whole, *runs = map(Path, sys.argv[1:])
    for command in commands(whole, place):  # imports what is needed
        assert done(command)[0] == 0, done(command)
    before = most()
    for run in runs:
        for command in commands(run, place):
            code, said = done(command)
            told = {"run": run.name, "does": command[0], "code": code, "grown": most() - before}
            print(json.dumps({**told, "said": said[-2000:]}), flush=True)

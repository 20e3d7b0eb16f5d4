"""Folders that are made to take memory, with checksums that fit, and what it takes to open them.

``python tests/runs/hostile.py PLACE WHOLE RUN...`` does with each of these folders all that one can
do with a run, each in a process of its own, and prints by how many bytes it has grown at the most.
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
from srpfl.runs.room import weight
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


def fitting(each: Any, room: int) -> list[Any]:
    """As many of a thing as there is room for in memory, by the weight of their text."""
    one = weight(json.dumps([each, each]).encode()) - weight(json.dumps([each]).encode())
    return [each] * (room // one)


def of_records(limit: int) -> int:
    """What each round's record can take, beside the evaluations and itself."""
    return (limit - 50_000) // ROUNDS - 5000


def in_all_texts(folder: Path, limit: int) -> None:
    in_every_round(folder, {"decision": {"x": fitting({"a": 1}, of_records(limit))}})
    in_counts(folder / "partition.json", lambda told: fitting([], limit // 5))
    in_text(folder / "config.json", lambda told: {**told, "x": fitting({}, limit // 5)})
    for state in (folder / "checkpoints").glob("*/state.json"):
        in_text(state, lambda told: {**told, "memory": {"x": fitting({}, limit // 5)}})


def in_strings(folder: Path, limit: int) -> None:
    """Long ones, and a last line that makes all others be written again."""
    in_every_round(folder, {"decision": {"x": "a" * of_records(limit)}})
    with (folder / "rounds.jsonl").open("a") as file:
        file.write("{")


def in_arrivals(folder: Path, limit: int) -> None:
    count = len(fitting([123456, 12.5], of_records(limit)))
    asked = {"participants": [*range(count)], "arrivals": [n / 2 for n in range(count)]}
    in_text(folder / "config.json", lambda told: _of_clients(told, 10**7))
    (folder / "evaluations.jsonl").unlink()
    in_every_round(folder, asked)


def _of_clients(told: Any, clients: int) -> Any:
    return {**told, "data": {**told["data"], "clients": clients}, "evaluate_at": []}


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


FORGERIES: list[Callable[[Path, int], None]] = [
    in_all_texts,
    in_strings,
    in_arrivals,
    in_weights,
    in_promises,
]


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


def told_of(run: Path, command: list[str]) -> None:
    """Print what comes of a command in this process."""
    before = most()
    code, said = done(command)
    told = {"run": run.name, "does": command[0], "code": code, "grown": most() - before}
    print(json.dumps({**told, "said": said[-2000:]}), flush=True)


if __name__ == "__main__":
    place, whole, *runs = map(Path, sys.argv[1:])
    for command in commands(whole, place):  # imports what is needed
        assert done(command)[0] == 0, done(command)
    for run in runs:
        for command in commands(run, place):
            if os.fork() == 0:  # a process never gives back all that it took
                told_of(run, command)
                os._exit(0)
            assert os.wait()[1] == 0

"""Damage to a run folder, drawn at random, and what is true of a run that was damaged."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import srpfl
import tiny
from srpfl.runs.folder import RunFolder
from srpfl.runs.results import Results
from srpfl.runs.seal import seal
from srpfl.runs.segments import CLIENTS

RECORDS = ("config.json", "rounds.jsonl", "evaluations.jsonl")
ROUNDS = 5


def play(folder: Path, **changes: Any) -> srpfl.Run:
    """A small run with several personal files and two kinds of evaluation."""
    return tiny.simulate(**{"out": folder, "rounds": ROUNDS, "evaluate_every": 2, **changes})


def flip(data: bytes, place: int, value: int) -> bytes:
    at = place % len(data)
    return data[:at] + bytes([data[at] ^ (1 + value % 255)]) + data[at + 1 :]


def cut(data: bytes, place: int, value: int) -> bytes:
    return data[: place % len(data)]


def hole(data: bytes, place: int, value: int) -> bytes:
    at = place % len(data)
    return data[:at] + bytes(min(1 + value, len(data) - at)) + data[at + 1 + value :]


def digit(data: bytes, place: int, value: int) -> bytes:
    """Another digit in the place of one."""
    digits = [at for at, byte in enumerate(data) if chr(byte).isdigit()]
    if not digits:
        return data
    at = digits[place % len(digits)]
    other = (data[at] - 48 + 1 + value % 9) % 10
    return data[:at] + str(other).encode() + data[at + 1 :]


def word(data: bytes, place: int, value: int) -> bytes:
    """Another value in the place of a number."""
    texts = [b"NaN", b"1e999", b"-1", b"null", b'"x"', b"[]", b"{}", b"1e3", b"9" * 30]
    digits = [at for at, byte in enumerate(data) if chr(byte).isdigit()]
    if not digits:
        return data
    at = digits[place % len(digits)]
    return data[:at] + texts[value % len(texts)] + data[at + 1 :]


def _lines(change: Callable[[list[bytes], int, int], list[bytes]]) -> Any:
    def damage(data: bytes, place: int, value: int) -> bytes:
        lines = data.splitlines(keepends=True)
        return b"".join(change(lines, place % len(lines), value % len(lines)))

    damage.__name__ = change.__name__
    return damage


@_lines
def without(lines: list[bytes], one: int, other: int) -> list[bytes]:
    return lines[:one] + lines[one + 1 :]


@_lines
def twice(lines: list[bytes], one: int, other: int) -> list[bytes]:
    return lines[: one + 1] + lines[one:]


@_lines
def swapped(lines: list[bytes], one: int, other: int) -> list[bytes]:
    lines[one], lines[other] = lines[other], lines[one]
    return lines


@_lines
def copied(lines: list[bytes], one: int, other: int) -> list[bytes]:
    lines[one] = lines[other]
    return lines


def longer(data: bytes, place: int, value: int) -> bytes:
    return data + bytes([value % 256]) * (1 + place % 40)


IN_FILE = [flip, cut, hole, digit, word, without, twice, swapped, copied, longer]
OF_FILE = ["removed", "emptied", "folder", "link"]
FILES = [
    *("config.json", "partition.json", "rounds.jsonl", "evaluations.jsonl", "timing.jsonl"),
    *("state of the newest", "state of the older", "weights of the newest", "a personal file"),
]


@dataclass(frozen=True)
class Damage:
    file: str
    kind: str
    place: int
    value: int

    def path(self, folder: Path) -> Path:
        newest = sorted((folder / "checkpoints").glob("[0-9]*"))
        personal = sorted((folder / "personal").glob("*.safetensors"))
        known = {
            "state of the newest": newest[-1] / "state.json",
            "state of the older": newest[0] / "state.json",
            "weights of the newest": newest[-1] / "shared.safetensors",
            "a personal file": personal[self.place % len(personal)],
        }
        return known.get(self.file, folder / self.file)

    def to(self, folder: Path) -> None:
        path = self.path(folder)
        if self.kind not in OF_FILE:
            change = next(each for each in IN_FILE if each.__name__ == self.kind)
            data = path.read_bytes()
            path.write_bytes(change(data, self.place, self.value) if data else b"x")
            return
        if self.kind == "emptied":
            path.write_bytes(b"")
            return
        data = path.read_bytes()
        path.unlink()
        if self.kind == "folder":
            path.mkdir()
        elif self.kind == "link":
            path.symlink_to(outside(folder))
            outside(folder).write_bytes(data)


def outside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-outside")


damages = st.builds(
    Damage,
    st.sampled_from(FILES),
    st.sampled_from([*(each.__name__ for each in IN_FILE), *OF_FILE]),
    st.integers(0, 2**20),
    st.integers(0, 2**20),
)


def copy_of(folder: Path, place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    outside(place).unlink(missing_ok=True)
    shutil.copytree(folder, place)
    return place


def as_format_3(folder: Path) -> Path:
    """Write a run's parts as the version before wrote them: a tensor for each client and name, and
    in the state, for each file, the clients whose newest part is there."""
    hashes = {}
    for file in sorted((folder / "personal").glob("*.safetensors")):
        rows = load_file(file)
        clients = rows.pop(CLIENTS).tolist()
        save_file(
            {f"{c}/{n}": v[i].clone() for i, c in enumerate(clients) for n, v in rows.items()}, file
        )
        hashes[file.name] = (hashlib.sha256(file.read_bytes()).hexdigest(), clients)
    for place in (folder / "checkpoints").glob("*/state.json"):
        state = json.loads(place.read_text())
        del state["sum"]
        mine = {client: file for file in sorted(state["hashes"]) for client in hashes[file][1]}
        personal: dict[str, list[int]] = {}
        for client, file in sorted(mine.items()):
            personal.setdefault(file, []).append(client)
        held = {file: len(hashes[file][1]) for file in state["hashes"]}
        state |= {"hashes": {file: hashes[file][0] for file in state["hashes"]}}
        place.write_text(seal(json.dumps({**state, "personal": personal, "held": held})))
    config = json.loads((folder / "config.json").read_text())
    del config["sum"]
    text = json.dumps({**config, "format": 3}, indent=2) + "\n"
    (folder / "config.json").write_text(seal(text))
    return folder


def read(folder: Path) -> tuple[Results, list[str]]:
    said: list[str] = []
    return Results.read(RunFolder(folder, say=said.append)), said

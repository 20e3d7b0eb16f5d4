"""Saving a run's state and finding the last good one: safetensors and JSON, never pickle.

A checkpoint is a folder ``checkpoints/000012`` that appears by one rename, so it is there whole or
not at all. Personal parts are written once, into a file per checkpoint that holds only those that
changed; a checkpoint names, for each client, the file that has its part. Every file is listed with
its hash, so damage is noticed, and the checkpoint before the newest one is kept as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from srpfl.errors import RunFolderError
from srpfl.population import PersonalParts
from srpfl.rounds import State
from srpfl.split import Params

KEPT = 2  # checkpoints


def save(folder: Path, state: State, parts: PersonalParts | None = None) -> None:
    """Write the state after a round; older checkpoints than the last two go."""
    checkpoints, personal = folder / "checkpoints", folder / "personal"
    checkpoints.mkdir(exist_ok=True)
    before = _listed(checkpoints)[-1:]
    index: dict[str, str] = {}
    hashes: dict[str, str] = {}
    if before:
        old = json.loads((before[0] / "state.json").read_text())
        index, hashes = old["personal"], old["hashes"]
    if parts is not None and parts.unsaved:
        personal.mkdir(exist_ok=True)
        file = f"{state.round:06d}.safetensors"
        changed = sorted(parts.unsaved)
        tensors = {f"{c}/{name}": t for c in changed for name, t in parts.of(c).items()}
        hashes[file] = _save_tensors(personal / file, tensors)
        index |= {str(client): file for client in changed}
        parts.unsaved.clear()
    used = set(index.values())
    content = {
        "round": state.round,
        "computing": state.computing,
        "participants": list(state.participants),
        "memory": dict(state.memory),
        "personal": index,
        "hashes": {file: value for file, value in hashes.items() if file in used},
    }
    place = checkpoints / f"{state.round:06d}"
    draft = checkpoints / f".{place.name}.{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    content["shared"] = _save_tensors(draft / "shared.safetensors", state.shared)
    (draft / "state.json").write_text(json.dumps(content))
    draft.rename(place)
    _forget(checkpoints, personal)


def load(
    folder: Path, initial: Params, *, rounds: int, say: Callable[[str], None]
) -> tuple[State, PersonalParts] | None:
    """The newest good state of at most that many rounds, or None; damage is said, not fatal."""
    for place in reversed(_listed(folder / "checkpoints")):
        if int(place.name) > rounds:
            continue
        try:
            return _read(place, folder / "personal", initial)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            say(f"the checkpoint after round {int(place.name)} is damaged ({error}): going back")
    return None


def newest(folder: Path) -> int:
    """The round of the newest checkpoint, good or not; 0 where there is none."""
    return max((int(place.name) for place in _listed(folder / "checkpoints")), default=0)


def forget_after(folder: Path, round: int) -> None:
    """Remove checkpoints of later rounds: those rounds will be played again."""
    for place in _listed(folder / "checkpoints"):
        if int(place.name) > round:
            shutil.rmtree(place)


def _read(place: Path, personal: Path, initial: Params) -> tuple[State, PersonalParts]:
    content = json.loads((place / "state.json").read_text())
    if content["round"] != int(place.name) or not isinstance(content["computing"], (int, float)):
        raise ValueError("state.json is not what was written")
    _verify(place / "shared.safetensors", content["shared"])
    for file, digest in content["hashes"].items():
        _verify(personal / file, digest)
    state = State(
        round=content["round"],
        computing=content["computing"],
        shared=load_file(place / "shared.safetensors"),
        memory=content["memory"],
        participants=tuple(content["participants"]),
    )
    parts = PersonalParts(initial)
    by_file: dict[str, list[int]] = {}
    for client, file in content["personal"].items():
        by_file.setdefault(file, []).append(int(client))
    for file, clients in by_file.items():
        with safe_open(personal / file, framework="pt") as tensors:
            for client in clients:
                parts.trained[client] = {n: tensors.get_tensor(f"{client}/{n}") for n in initial}
    return state, parts


def _save_tensors(path: Path, tensors: Mapping[str, Any]) -> str:
    """Write atomically; return the file's hash."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    save_file({n: t.detach().cpu().contiguous().clone() for n, t in tensors.items()}, draft)
    draft.replace(path)
    return _digest(path)


def _verify(path: Path, digest: str) -> None:
    if _digest(path) != digest:
        raise ValueError(f"{path.name} is not what was written")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _listed(checkpoints: Path) -> list[Path]:
    return sorted(
        place for place in checkpoints.glob("[0-9]*") if place.is_dir() and place.name.isdigit()
    )


def _forget(checkpoints: Path, personal: Path) -> None:
    """Remove old checkpoints and the personal files that none of the kept ones names."""
    for place in _listed(checkpoints)[:-KEPT]:
        shutil.rmtree(place)
    named: set[str] = set()
    for place in _listed(checkpoints):
        named |= set(json.loads((place / "state.json").read_text())["hashes"])
    for file in personal.glob("*.safetensors"):
        if file.name not in named:
            file.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text)
        draft.replace(path)
    except OSError as error:
        raise RunFolderError(f"cannot write {path}: {error.strerror}") from error

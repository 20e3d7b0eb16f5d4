"""Saving a run's state and finding the last good one: safetensors and JSON, never pickle.

A checkpoint is a folder ``checkpoints/000012`` that appears by one rename, so it is there whole or
not at all. Personal parts are written once, into a file per checkpoint that holds those that
changed (``shelf.py``); a checkpoint names the files that it needs. Each is listed with its hash and
the list has a checksum, so damage is noticed, and the checkpoint before the newest one is kept as
well. Going on with a run reads every file once to verify it, but no part before it is needed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from srpfl.core.slots import packed, unpacked
from srpfl.core.split import Params
from srpfl.errors import RunFolderError
from srpfl.runs.files import (
    CHECKPOINT_NAME,
    CHECKPOINTS,
    PERSONAL,
    PERSONAL_NAME,
    SHARED,
    STATE,
    draft_of,
    folder_at,
    read_bytes,
    remove_checkpoint,
    sync,
    write_bytes,
    write_text,
)
from srpfl.runs.flights import MARK, named_versions, names_by_version, read_flights, told_flights
from srpfl.runs.records import RoundRecord, are_numbers
from srpfl.runs.seal import opened, seal
from srpfl.runs.segments import tensors_of
from srpfl.runs.shelf import Shelf
from srpfl.runs.state import ClientParts, State

KEPT = 2  # checkpoints
DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError, RunFolderError)


class OtherWeightsError(RunFolderError):
    """A checkpoint that is whole, of another model."""


class Checkpoints:
    """The checkpoints of one run folder. What the newest one names is remembered, so that saving
    does not have to read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._shelf = Shelf(folder / PERSONAL)
        self._newest: Path | None = None  # of those that were saved here
        self._synced: Path | None = None  # the newest that is on the disk for sure
        self._afloat: set[str] = set()  # personal files that may not be there yet
        self._named: dict[Path, set[str]] = {}  # by checkpoint, the personal files that it needs

    def save(self, state: State, parts: ClientParts, *, sealed: bool = True) -> None:
        """Write the state after a round; older checkpoints than the last two go, but for the newest
        that would outlast a loss of power."""
        checkpoints = self.folder / CHECKPOINTS
        folder_at(checkpoints, make=True)
        if parts.unsaved:
            self._save_parts(f"{state.round:06d}.safetensors", parts)
        place = checkpoints / f"{state.round:06d}"
        if folder_at(place):  # what is left of one that came to nothing
            remove_checkpoint(place)
            if folder_at(place):
                raise OSError(0, f"{place} holds files of others, move them elsewhere")
        draft = draft_of(place)
        draft.mkdir()
        try:
            self._fill(draft, state, sealed=sealed)
            draft.rename(place)
        except BaseException:
            with contextlib.suppress(OSError):
                remove_checkpoint(draft)  # a full disk must not stay full of drafts
            raise
        self._newest = place
        self._named[place] = set(self._shelf.hashes)
        self._forget()

    def _fill(self, draft: Path, state: State, *, sealed: bool) -> None:
        tensors = packed(state.shared, state.server) | named_versions(state.versions)
        content = {
            "round": state.round,
            "computing": state.computing,
            "participants": list(state.participants),
            "memory": dict(state.memory),
            "hashes": self._shelf.hashes,
            "shared": self._save_tensors(draft / SHARED, tensors),
        }
        if state.flights:
            content["flights"] = told_flights(state.flights)
        text = json.dumps(content, allow_nan=False)
        write_text(draft / STATE, seal(text) if sealed else text)

    def settle(self) -> None:
        """Wait until the newest checkpoint is on the disk. Only then can older ones go that were
        there before."""
        place = self._newest
        if place is None or place == self._synced:
            return
        self.settle_parts()
        personal = self.folder / PERSONAL
        folders = [personal] if self._shelf.hashes else []
        for path in (*folders, place / SHARED, place / STATE, place, place.parent):
            sync(path)
        self._synced = place
        self._forget()

    def settle_parts(self, most: float = math.inf) -> bool:
        """Wait until the disk has the clients' parts, for so many seconds at most; whether it has
        all. At least two files are waited for, so that the rest gets less with each checkpoint."""
        until = time.monotonic() + most
        self._afloat &= self._shelf.hashes.keys()
        for count, file in enumerate(sorted(self._afloat)):
            if count >= 2 and time.monotonic() > until:
                return False
            sync(self.folder / PERSONAL / file)
            self._afloat.remove(file)
        return True

    def load(
        self,
        state: State,
        parts: ClientParts,
        *,
        rounds: int,
        say: Callable[[str], None],
        sealed: bool,
        records: Sequence[RoundRecord] = (),
    ) -> tuple[State, ClientParts]:
        """The newest good state of at most that many rounds, or else the given one, with which the
        run began; damage is said, not fatal."""
        for place in reversed(listed(self.folder)):
            if int(place.name) > rounds:
                continue
            try:
                content = verified(place, sealed=sealed)
                check_same_run(content, records)
                found = _state(place, content, state, parts.clients)
                shelf = self._fetch(place, content, parts)
            except OtherWeightsError:
                raise
            except DAMAGE as error:
                say(
                    f"the checkpoint after round {int(place.name)} is damaged ({error}): going back"
                )
                continue
            self._shelf = shelf
            self._newest, self._afloat = place, set(content["hashes"])
            return found, parts
        return state, parts

    def _fetch(self, place: Path, content: Mapping[str, Any], parts: ClientParts) -> Shelf:
        """Let the parts be those of a checkpoint."""
        shelf = Shelf(self.folder / PERSONAL)
        if "personal" in content:  # an older folder's: the next checkpoint writes them all
            parts.unsaved = _older_parts(place, content, parts)
        elif not shelf.open(content["hashes"], parts.initial, parts.clients):
            raise OtherWeightsError(_other(place))
        else:
            parts.saved(shelf)
        return shelf

    def forget_after(self, round: int) -> None:
        """Remove checkpoints of later rounds: those rounds will be played again."""
        for place in listed(self.folder):
            if int(place.name) > round:
                remove_checkpoint(place)

    def _save_parts(self, file: str, parts: ClientParts) -> None:
        folder_at(self.folder / PERSONAL, make=True)
        self._shelf.add(
            file, parts.unsaved, lambda path, rows: self._save_tensors(path, tensors_of(rows))
        )
        self._afloat.add(file)
        parts.saved(self._shelf)

    def _save_tensors(self, path: Path, tensors: Mapping[str, Any]) -> str:
        """Write atomically; return the file's hash. The library's own writing to a file leaves
        another one behind when it is killed, by a name that nobody knows."""
        data = save({n: t.detach().cpu().contiguous().clone() for n, t in tensors.items()})
        write_bytes(path, data)
        return hashlib.sha256(data).hexdigest()

    def _forget(self) -> None:
        """Remove old checkpoints and the personal files that none of the kept ones names."""
        there = listed(self.folder)
        kept = [place for place in there if place in there[-KEPT:] or place == self._synced]
        for place in there:
            if place not in kept:
                remove_checkpoint(place)
        named = set[str]().union(*map(self._needs, kept))
        personal = self.folder / PERSONAL
        for name in personal_files(personal) - named:
            (personal / name).unlink()

    def _needs(self, place: Path) -> set[str]:
        """The personal files that a checkpoint names."""
        if place not in self._named:
            try:
                self._named[place] = set(_content(place, sealed=False)["hashes"])
            except DAMAGE:
                return set()  # nobody can go back to it
        return self._named[place]


def newest(folder: Path) -> int:
    """The round of the newest checkpoint, good or not; 0 where there is none."""
    return max((int(place.name) for place in listed(folder)), default=0)


def listed(folder: Path) -> list[Path]:
    """The checkpoints of a run folder, the oldest first."""
    checkpoints = folder / CHECKPOINTS
    if not folder_at(checkpoints):
        return []
    found = [e for e in checkpoints.iterdir() if CHECKPOINT_NAME.fullmatch(e.name) and folder_at(e)]
    return sorted((e for e in found if (e / STATE).exists() or (e / SHARED).exists()), key=_round)


def personal_files(personal: Path) -> set[str]:
    """The names of the files of parts, of which there may be a thousand."""
    if not folder_at(personal):
        return set()
    return {name for name in os.listdir(personal) if PERSONAL_NAME.fullmatch(name)}


def verified(place: Path, *, sealed: bool, known: dict[Path, str] | None = None) -> dict[str, Any]:
    """What a checkpoint says, if it and all files that it names are what was written. ``known`` are
    the hashes of files that another checkpoint has named before."""
    content = _content(place, sealed=sealed)
    known = {} if known is None else known
    _verify(place / SHARED, content["shared"], known)
    for file, told in content["hashes"].items():
        _verify(place.parent.parent / PERSONAL / file, told, known)
    return content


def check_same_run(content: Mapping[str, Any], records: Sequence[RoundRecord]) -> None:
    """Refuse a state that the rounds which were recorded do not lead to: files of two runs, each of
    them whole, may have been mixed up."""
    for record in records[content["round"] - 1 : content["round"]] if content["round"] else ():
        told = content["computing"], content["participants"]
        if told != (record.computing, record.participants):
            raise ValueError("the records are those of another run")


def _content(place: Path, *, sealed: bool) -> dict[str, Any]:
    content, _ = opened(read_bytes(place / STATE), needed=sealed)
    if (
        type(content["round"]) is not int
        or content["round"] != int(place.name)
        or not are_numbers([content["computing"]])
        or content["computing"] < 0
        or not isinstance(content["memory"], dict)
        or not _are_places(content["participants"])
    ):
        raise ValueError(f"{STATE} is not what was written")
    if not all(PERSONAL_NAME.fullmatch(name) for name in content["hashes"]):
        raise ValueError(f"{STATE} names files that are not its own")
    return {**content, "flights": read_flights(content.get("flights", []))}


def _are_places(values: Any) -> bool:
    """Whether these are numbers of clients."""
    return isinstance(values, list) and all(type(n) is int and 0 <= n < 1 << 63 for n in values)


def _state(place: Path, content: Mapping[str, Any], began: State, clients: int | None) -> State:
    """The state of a checkpoint. Shapes are compared before anything is loaded: a file says itself
    how much memory it takes."""
    with safe_open(place / SHARED, framework="pt") as tensors:
        wanted = packed(began.shared, began.server)
        there = set(tensors.keys())
        if {name for name in there if not name.startswith(MARK)} != wanted.keys():
            raise OtherWeightsError(_other(place))
        shared, server = unpacked(_taken(place, tensors, wanted))
        order = {name: number for number, name in enumerate(wanted)}
        versions = {
            version: _taken(
                place,
                tensors,
                # In the model's order, as they were: sums of all weights go by it.
                {n: wanted[n] for n in sorted(names, key=order.__getitem__)},
                f"{MARK}{version}/",
            )
            for version, names in names_by_version(there).items()
        }
    flights, participants = content["flights"], content["participants"]
    seen = max([*participants, *(flight.client for flight in flights)], default=0)
    if clients is not None and seen >= clients:
        raise ValueError(f"{STATE} names clients that there are not")
    if not {flight.version for flight in flights} <= versions.keys():
        raise ValueError(f"{SHARED} does not hold what the clients at work were sent")
    return State(
        round=content["round"],
        computing=content["computing"],
        shared=shared,
        memory=content["memory"],
        participants=tuple(participants),
        server=server,
        flights=flights,
        versions=versions,
    )


def _older_parts(place: Path, content: Mapping[str, Any], parts: ClientParts) -> dict[int, Params]:
    """All parts of a checkpoint of format 3 or before, which says for each file whose are there, or
    for each client in which file its part is."""
    personal, by_file = content["personal"], dict[str, list[int]]()
    for key, value in personal.items():
        if isinstance(value, str):
            by_file.setdefault(value, []).append(int(key))
        else:
            by_file[key] = value
    if not by_file.keys() <= content["hashes"].keys() or not all(
        map(_are_places, by_file.values())
    ):
        raise ValueError(f"{STATE} names files that are not its own")
    found = {}
    for file, clients in by_file.items() if parts.initial else ():
        with safe_open(place.parent.parent / PERSONAL / file, framework="pt") as tensors:
            for client in clients:
                found[client] = _taken(place, tensors, parts.initial, f"{client}/")
    return found


def _taken(place: Path, tensors: Any, wanted: Params, prefix: str = "") -> Params:
    """Tensors of a file, if they have the shapes of the model's. Types may differ: a run in double
    precision begins with single numbers."""
    for name, value in wanted.items():
        if tensors.get_slice(prefix + name).get_shape() != list(value.shape):
            raise OtherWeightsError(_other(place))
    found = {name: tensors.get_tensor(prefix + name) for name in wanted}
    if any(found[name].is_floating_point() != wanted[name].is_floating_point() for name in wanted):
        raise OtherWeightsError(_other(place))
    return found


def _other(place: Path) -> str:
    return (
        f"{place.parent.parent} holds the weights of another model, or of a version of srpfl that "
        "kept them otherwise (frozen ones among them): play it again in another folder"
    )


def _verify(path: Path, told: str, known: dict[Path, str]) -> None:
    if path.is_symlink() or not path.is_file():
        raise ValueError(f"there is no file {path.name}")
    if path not in known:
        if not _has_its_size(path):
            raise ValueError(f"{path.name} is not as long as it was written")
        known[path] = _digest(path)
    if known[path] != told:
        raise ValueError(f"{path.name} is not what was written")


def _has_its_size(path: Path) -> bool:
    """Whether a file is as long as its header says: one with a terabyte of nothing at its end takes
    no room on a disk, and hours to be read."""
    try:
        with safe_open(path, framework="pt"):
            return True
    except SafetensorError:
        return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _round(place: Path) -> int:
    return int(place.name)

"""The one place that opens, writes and removes files of a run folder.

Links are never followed: a folder may come from anybody, and what a link points to is not ours.
A file is written beside its place and renamed, so it is there whole or not at all; ``durable``
means that data and folder are on the disk before the rename counts. Only files with names of our
own are ever removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from srpfl.errors import RunFolderError
from srpfl.runs.room import TEXTS, Room, largest

CONFIG, PARTITION, ROUNDS, EVALUATIONS, TIMING, EVENTS, DIVERGED, LOCK = (
    "config.json",
    "partition.json",
    "rounds.jsonl",
    "evaluations.jsonl",
    "timing.jsonl",
    "events.jsonl",
    "diverged.txt",
    ".lock",
)
CHECKPOINTS, PERSONAL, STATE, SHARED = (
    "checkpoints",
    "personal",
    "state.json",
    "shared.safetensors",
)
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a pipe in the place of a file must not hang us

CHECKPOINT_NAME = re.compile(r"[0-9]{6,}")  # its round
PERSONAL_NAME = re.compile(r"[0-9]{6,}\.safetensors")
DRAFT_NAME = re.compile(
    r"\.([0-9]{6,}|[a-z0-9]+\.(json|jsonl|safetensors)|diverged\.txt|\.worker)\.[0-9]+"
)


def read_bytes(path: Path) -> bytes:
    """A JSON text of a run folder. ``FileNotFoundError`` where there is none."""
    room = Room(largest() // TEXTS)
    with _opened(path, room) as file:
        data = file.read()
    room.take(data, path)
    return data


def read_lines(path: Path, room: Room) -> Iterator[bytes]:
    """The lines of a file of records. ``FileNotFoundError`` where there is none."""
    longest = room.most // TEXTS
    with _opened(path, room) as file:
        size = max(1, os.fstat(file.fileno()).st_size)
        for line in iter(lambda: file.readline(longest), b""):
            if len(line) == longest:
                raise room.refused(path, TEXTS * size)
            room.take(line, path, share=min(1.0, file.tell() / size))
            yield line


def read_end(path: Path, count: int) -> bytes:
    """The last bytes of a file, however many come before them."""
    with _opened(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - count))
        return file.read(count)


@contextlib.contextmanager
def _opened(path: Path, room: Room | None = None) -> Iterator[IO[bytes]]:
    """A file of a run folder to read from, unless it is larger than there is room."""
    refuse_link(path)
    handle = os.open(path, os.O_RDONLY | NO_LINK | NO_WAIT)
    with open(handle, "rb") as file:
        told = os.fstat(handle)
        if not stat.S_ISREG(told.st_mode):
            raise RunFolderError(f"{path} is not a file: a run folder holds files of its own")
        if room is not None and told.st_size > room.most:
            raise room.refused(path, told.st_size)
        yield file


def append(path: Path, text: str) -> None:
    refuse_link(path)
    with contextlib.suppress(FileNotFoundError):
        if path.lstat().st_nlink > 1:  # a hard link: what has another name stays as it is there
            write_with(lambda draft: shutil.copyfile(path, draft), path)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | NO_LINK | NO_WAIT, 0o666)
    with open(handle, "a", encoding="utf-8") as file:
        file.write(text)


def write_text(path: Path, text: str | Iterable[str], *, durable: bool = False) -> None:
    """Write a file whole or not at all; a text that comes in pieces is never in memory as one."""

    def fill(draft: Path) -> None:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK, 0o666)
        with open(handle, "w", encoding="utf-8") as file:
            file.writelines([text] if isinstance(text, str) else text)

    try:
        write_with(fill, path, durable=durable)
    except OSError as error:
        raise RunFolderError(f"cannot write {path}: {error.strerror}") from error


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    write_with(lambda draft: fill_draft(draft, data), path)


def fill_draft(draft: Path, data: bytes) -> None:
    with draft.open("xb") as file:
        file.write(data)


def write_with(fill: Callable[[Path], object], path: Path, *, durable: bool = False) -> None:
    """Let a function write a draft, which then takes the place of the file."""
    draft = draft_of(path)
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()
    try:
        fill(draft)
        if durable:
            sync(draft)
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()  # a full disk must not stay full of drafts
        raise
    if durable:
        sync(path.parent)


def draft_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")


def sync(path: Path) -> None:
    """Wait until a file's data, or a folder's names, are on the disk."""
    if os.name == "nt" and path.is_dir():  # where folders cannot be opened
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def folder_at(path: Path, *, make: bool = False) -> bool:
    """Whether there is a real folder; anything else by that name is refused."""
    if make and not path.is_symlink():
        path.mkdir(exist_ok=True)
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(mode):
        raise RunFolderError(f"{path} is {_what(mode)}, not a folder: it is not followed")
    return True


def refuse_links(folder: Path) -> None:
    """Refuse a run folder in which something that we would write or remove leads elsewhere."""
    for name in (CONFIG, PARTITION, ROUNDS, EVALUATIONS, TIMING, DIVERGED, LOCK):
        refuse_link(folder / name)
    for inner in (CHECKPOINTS, PERSONAL):
        if folder_at(folder / inner):
            for entry in (folder / inner).iterdir():
                if PERSONAL_NAME.fullmatch(entry.name):
                    refuse_link(entry)
                elif CHECKPOINT_NAME.fullmatch(entry.name) and folder_at(entry):
                    for name in (STATE, SHARED):
                        refuse_link(entry / name)


def remove_drafts(folder: Path) -> list[Path]:
    """Remove what a crash left half written; the caller holds the lock."""
    found = drafts(folder)
    for draft in found:
        if draft.is_dir():
            remove_checkpoint(draft)
        else:
            draft.unlink()
    return found


def drafts(folder: Path) -> list[Path]:
    """What a crash left half written in a run folder."""
    return sorted(
        entry
        for place in (folder, folder / CHECKPOINTS, folder / PERSONAL)
        if folder_at(place)
        for entry in place.iterdir()
        if DRAFT_NAME.fullmatch(entry.name) and not entry.is_symlink() and _is_left(entry)
    )


def _is_left(draft: Path) -> bool:
    """Whether anything of a draft is ours: what others have put into a checkpoint stays there."""
    try:
        entries = list(draft.iterdir()) if draft.is_dir() else []
    except FileNotFoundError:  # its own process was quicker
        return False
    return not entries or any(map(_is_ours, entries))


def _is_ours(entry: Path) -> bool:
    """Whether this is a file of a checkpoint, or a draft of one."""
    known = entry.name in (STATE, SHARED) or DRAFT_NAME.fullmatch(entry.name) is not None
    return known and entry.is_file() and not entry.is_symlink()


def remove_checkpoint(place: Path) -> None:
    """Remove a checkpoint by one rename, so that no half of it is ever found. What others have put
    into it stays, and so does its folder."""
    entries = list(place.iterdir())
    ours = [entry for entry in entries if _is_ours(entry)]
    if len(ours) < len(entries):
        for entry in ours:
            entry.unlink()
        return
    if not DRAFT_NAME.fullmatch(place.name):
        place = place.rename(draft_of(place))
    shutil.rmtree(place)


def refuse_link(path: Path) -> None:
    """Refuse to use what is there by that name, unless it is a file."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISREG(mode):
        raise RunFolderError(
            f"{path} is {_what(mode)}, not a file: a run folder holds files of its own, and others "
            "are not followed"
        )


def _what(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "a link"
    return "a folder" if stat.S_ISDIR(mode) else "something else"


def lock(file: IO[str], tries: int = 1) -> None:
    if sys.platform == "win32":  # which has no such lock; there it is left to the user
        return
    import fcntl

    for left in reversed(range(tries)):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not left:
                raise
            time.sleep(0.05)

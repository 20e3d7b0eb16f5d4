"""A run on disk: its config, records that grow line by line, checkpoints.

config.json        all that the run depends on
partition.json     training points by client and class, where the simulator knows them
rounds.jsonl       one line per round, appended as it happens
evaluations.jsonl  one line per evaluation
timing.jsonl       real seconds per round, apart from the records because they differ each time
diverged.txt       why training came to nothing, where it did
checkpoints/, personal/

Each of them but the timing carries a checksum, from format 3 on.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError

from srpfl.core.processes import ours_alone
from srpfl.errors import RunFolderError
from srpfl.runs.checkpoint import Checkpoints, newest
from srpfl.runs.config import SUMS, Counts, are_counts, config_text, counts_text, read_config
from srpfl.runs.files import (
    CONFIG,
    DIVERGED,
    EVALUATIONS,
    LOCK,
    NO_LINK,
    NO_WAIT,
    PARTITION,
    ROUNDS,
    TIMING,
    append,
    lock,
    read_bytes,
    read_end,
    refuse_links,
    remove_drafts,
    sync,
    write_text,
)
from srpfl.runs.reading import Held, held, lines_of, read_lines, sealed_line
from srpfl.runs.records import EvaluationRecord, RoundRecord, to_line
from srpfl.runs.seal import digest, parsed
from srpfl.runs.state import ClientParts, State

__all__ = [
    "CONFIG",
    "DIVERGED",
    "EVALUATIONS",
    "FORMAT",
    "PARTITION",
    "ROUNDS",
    "Counts",
    "RunFolder",
]

# Of the folder. In 1, evaluations had "accuracy" and "tested"; from 3 on there are checksums, and
# from 4 on files of clients' parts have a row for each. All are still read, and a folder keeps the
# format that it has, but for the files of parts.
FORMAT = 4

WAITING = 100  # times as long as the disk took, until we wait for it again: a hundredth of a run
A_WAIT = 0.5  # seconds at most that a checkpoint waits for the clients' parts of earlier ones
FIRST_WAIT = 1.0  # seconds after the start; shorter runs wait at their end alone
AS_WRITTEN = re.compile(rb'[0-9a-f]{16}"}\n')  # the end of a line with a sum


def on_stderr(text: str) -> None:
    """Standard output belongs to results."""
    print(f"srpfl: {text}", file=sys.stderr)


class RunFolder:
    """Where a run keeps what it has done.

    A killed process never harms it. ``durable`` makes it outlast a loss of power too: from time to
    time, and at the end, we wait until all of it is on the disk.
    """

    def __init__(
        self, path: Path, *, say: Callable[[str], None] = on_stderr, durable: bool = True
    ) -> None:
        self.path, self._say, self.durable = path, say, durable
        self._checkpoints = Checkpoints(path)
        self._next_wait = 0.0  # when to wait for the disk again
        self._waited = 0.0  # since the disk was last known to have everything
        self._lock: IO[str] | None = None
        self._sealed: bool | None = None  # whether there are checksums; None: not looked at yet
        self._last: dict[str, str] = {}  # by file of records, the last line's sum

    def create(self, config: dict[str, Any], counts: Counts | None = None) -> None:
        """Claim an empty or new folder for a run."""
        self._sealed = config.get("format", 1) >= 3
        text = config_text(config, counts if self._sealed else None, sealed=self._sealed)
        try:
            new = [place for place in (self.path, *self.path.parents) if not place.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
            for place in new if self.durable else []:
                sync(place.parent)
            if (self.path / CONFIG).exists():
                raise RunFolderError(
                    f"{self.path} already holds a run: choose another folder, or continue that "
                    "run with resume=True (on the command line: --resume)"
                )
            if any(not _ours(entry.name) for entry in self.path.iterdir()):
                raise RunFolderError(
                    f"{self.path} is not empty and holds no run: choose another folder"
                )
        except OSError as error:
            raise RunFolderError(f"cannot write to {self.path}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:  # a zero byte, or a thousand folders
            raise RunFolderError(f"cannot write to {str(self.path)!r}: {error}") from error
        self.claim()
        self._tidy()  # after a start that was killed
        if counts is not None:
            self._write(PARTITION, counts_text(counts))
        # Last, because a folder with a config holds a run.
        self._write(CONFIG, text)
        self._last = {ROUNDS: "", EVALUATIONS: ""}
        self._next_wait = time.monotonic() + FIRST_WAIT

    def check_same(self, config: dict[str, Any]) -> None:
        """Refuse to continue another run than the folder's. What a folder or its options do not
        say, because they are older, is taken to be the same."""
        held = self.config()
        changed = [
            key
            for key, value in held.items()
            if key not in ("options", "format") and config.get(key) != value
        ]
        if held.get("format", 1) > FORMAT:
            raise RunFolderError(
                f"{self.path} was written by a newer srpfl: update, or choose another folder"
            )
        options = config.get("options") or {}
        if any(options.get(name) != value for name, value in (held.get("options") or {}).items()):
            changed.append("options")
        if changed:
            shorter = "rounds" in changed and f", or at least its {held['rounds']} rounds"
            raise RunFolderError(
                f"{self.path} holds another run (it differs in {', '.join(changed)}): "
                f"choose another folder{shorter or ''}"
            )

    def rewrite(self, config: dict[str, Any]) -> None:
        """Another config in place of the one that is there, of a run that was restored."""
        counts = self.counts() if self.sealed else None
        self._write(CONFIG, config_text(config, counts, sealed=self.sealed))

    def config(self) -> dict[str, Any]:
        """What the run was asked to do."""
        return {name: value for name, value in read_config(self.path).items() if name not in SUMS}

    def counts(self) -> Counts | None:
        """Training points by client and class; None where they are not known, or not any more."""
        told = read_config(self.path).get("sums")
        try:
            data = read_bytes(self.path / PARTITION)
            if isinstance(told, dict) and digest(data) != told.get(PARTITION):
                raise ValueError("its checksum does not fit")
            counts: Counts = parsed(data)
            if not (isinstance(counts, list) and all(map(are_counts, counts))):
                raise ValueError("it is not what was written")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:  # only a picture depends on it
            self._say(f"{self.path / PARTITION} is damaged ({error}): it is left out")
            return None
        return counts

    def add(self, record: RoundRecord | EvaluationRecord) -> None:
        name = ROUNDS if isinstance(record, RoundRecord) else EVALUATIONS
        if not self.sealed:
            self._append(name, to_line(record))
            return
        if name not in self._last:  # somebody else wrote the lines before
            records = self.rounds() if name == ROUNDS else self.evaluations()
            self._last[name] = ""
            for line in lines_of(records, sealed=True):
                self._last[name] = line[-19:-3]
        line, self._last[name] = sealed_line(record, self._last[name])
        self._append(name, line)

    def note_divergence(self, why: str) -> None:
        """Leave a note for people who look at the run; continuing it removes the note."""
        with contextlib.suppress(OSError):  # the error itself is on its way to the user
            self._write(DIVERGED, why + "\n")

    def add_timing(self, round: int, seconds: float) -> None:
        self._append(TIMING, json.dumps({"round": round, "seconds": round_off(seconds)}) + "\n")

    def rounds(self) -> list[RoundRecord]:
        records, damage = read_lines(self.path / ROUNDS, RoundRecord, sealed=self.sealed)
        return self._said(records, damage)

    def evaluations(self) -> list[EvaluationRecord]:
        path = self.path / EVALUATIONS
        records, damage = read_lines(path, EvaluationRecord, sealed=self.sealed)
        return self._said(records, damage)

    def records(self) -> tuple[list[RoundRecord], list[EvaluationRecord]]:
        """All rounds and evaluations before the first damage, which is said."""
        found = self.held()
        if not (found.damage or found.lost):
            return found.rounds, found.evaluations
        for text in (*found.damage, *found.lost):
            self._say(text)
        self._say(
            f"{self.path} is damaged: it is read as far as round {found.whole}; `srpfl doctor` "
            "says more"
        )
        return found.upto(found.whole)

    def held(self) -> Held:
        """The records, and what is wrong with them."""
        return held(self.path, self.config(), sealed=self.sealed)

    @property
    def sealed(self) -> bool:
        """Whether this folder has checksums, which older ones do not."""
        if self._sealed is None:
            try:
                self._sealed = read_config(self.path).get("format", 1) >= 3
            except RunFolderError:
                if (self.path / CONFIG).exists():
                    raise
                return True  # nothing is there yet
        return self._sealed

    def save(self, state: State, parts: ClientParts) -> None:
        try:
            self._checkpoints.save(state, parts, sealed=self.sealed)
            if self.durable and time.monotonic() >= self._next_wait:
                self._settle(A_WAIT)
        except (OSError, ValueError, SafetensorError) as error:  # the latter also for a full disk
            reason = getattr(error, "strerror", None) or error
            raise RunFolderError(f"cannot save the state to {self.path}: {reason}") from error

    def _settle(self, most: float = math.inf) -> None:
        """Wait until the run is on the disk as it is now, for so many seconds at most: what is left
        then is waited for after the next checkpoints."""
        began = time.monotonic()
        done = self._checkpoints.settle_parts(most)
        if done:
            for name in (ROUNDS, EVALUATIONS):  # a state is of no use without the records before it
                if (self.path / name).exists():
                    sync(self.path / name)
            sync(self.path)
            self._checkpoints.settle()
        ended = time.monotonic()
        self._waited += ended - began
        if done:
            self._next_wait, self._waited = ended + WAITING * self._waited, 0.0

    def restore(self, state: State, parts: ClientParts) -> tuple[State, ClientParts]:
        """Go back to the last good state, or to the given one, with which the run began: records
        after it are cut off, to be made again."""
        self.claim()
        there = self.held()
        for text in there.damage:
            self._say(text)
        saved = newest(self.path)
        found = self._checkpoints.load(
            state,
            parts,
            rounds=there.whole,
            say=self._say,
            sealed=self.sealed,
            records=there.rounds,
        )
        reached = found[0].round
        if reached < max(saved, len(there.rounds)):
            # One or the other was lost, or the run was stopped between the two.
            self._say(
                f"the records end after round {there.whole} and the last good state is that after "
                f"round {reached}: continuing from there"
            )
        try:
            self._checkpoints.forget_after(reached)
            (self.path / DIVERGED).unlink(missing_ok=True)
        except OSError as error:
            raise RunFolderError(f"cannot write to {self.path}: {error.strerror}") from error
        self._tidy()
        rounds, evaluations = there.upto(reached)
        self._cut(ROUNDS, rounds, whole=not there.damage and len(rounds) == len(there.rounds))
        self._cut(
            EVALUATIONS,
            evaluations,
            whole=not there.damage and len(evaluations) == len(there.evaluations),
        )
        self._end_timing()
        if self.durable:
            self._settle()
        return found

    def release(self) -> None:
        """Let other processes write here again."""
        if self._lock is None:
            return
        try:
            if self.durable:
                with contextlib.suppress(OSError):  # a disk that fails now has said so before
                    self._settle()
        finally:
            self._lock.close()
            self._lock = None

    def in_use(self) -> bool:
        """Whether another process is playing this run; nothing is written to find out."""
        try:
            handle = os.open(self.path / LOCK, os.O_RDONLY | NO_LINK | NO_WAIT)
            with open(handle) as file:
                lock(file)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def claim(self) -> None:
        """Make sure that nobody else writes to this run; the system forgets the lock with us."""
        refuse_links(self.path)
        try:
            # Not emptied: it may be anybody's file of that name.
            handle = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | NO_LINK, 0o666)
            self._lock = ours_alone(open(handle, "r+"))  # noqa: SIM115
            lock(self._lock, tries=5)  # who looks whether it is in use has it for a moment
        except BlockingIOError:
            if self._lock is not None:
                self._lock.close()
                self._lock = None
            raise RunFolderError(
                f"another process is playing the run in {self.path}: wait for it, or stop it"
            ) from None
        except OSError as error:
            raise RunFolderError(f"cannot write to {self.path}: {error.strerror}") from error

    def _tidy(self) -> None:
        """Remove what a crash left half written."""
        try:
            remove_drafts(self.path)
        except OSError as error:
            raise RunFolderError(f"cannot write to {self.path}: {error.strerror}") from error

    def _cut(self, name: str, records: Sequence[Any], *, whole: bool) -> None:
        """Let a file hold these records and no others; one that does already is left alone."""
        path = self.path / name
        if records and self.sealed:  # another end of lines, as of an editor, is no place to go on
            whole = whole and AS_WRITTEN.fullmatch(read_end(path, 19)) is not None
        if not whole and (records or path.exists()):
            self._write(name, lines_of(records, sealed=self.sealed))
        self._last[name] = read_end(path, 19).decode()[:16] if records else ""

    def _said(self, records: list[Any], damage: str | None) -> list[Any]:
        if damage is not None:
            self._say(damage)
        return records

    def _write(self, name: str, text: str | Iterable[str]) -> None:
        write_text(self.path / name, text, durable=self.durable)

    def _append(self, name: str, line: str) -> None:
        try:
            append(self.path / name, line)
        except OSError as error:
            raise RunFolderError(f"cannot write {self.path / name}: {error.strerror}") from error

    def _end_timing(self) -> None:
        """Cut off half a line, so that the next one does not continue it."""
        try:
            data = read_bytes(self.path / TIMING)
        except FileNotFoundError:
            return
        except OSError as error:
            raise RunFolderError(f"cannot read {self.path / TIMING}: {error.strerror}") from error
        whole = data[: data.rfind(b"\n") + 1]
        self._write(TIMING, whole.decode(errors="replace"))


def _ours(name: str) -> bool:
    """What a start that failed can leave behind; the system may have dot files too."""
    return name.startswith(".") or name == PARTITION


def round_off(seconds: float) -> float:
    return round(seconds, 3)

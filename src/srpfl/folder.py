"""A run on disk: its config, records that grow line by line, checkpoints.

config.json        all that the run depends on
partition.json     training points by client and class, where the simulator knows them
rounds.jsonl       one line per round, appended as it happens
evaluations.jsonl  one line per evaluation
timing.jsonl       real seconds per round, apart from the records because they differ each time
checkpoints/, personal/
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

from safetensors import SafetensorError

from srpfl import checkpoint
from srpfl.errors import RunFolderError
from srpfl.population import PersonalParts
from srpfl.records import EvaluationRecord, RoundRecord, check_types, to_line
from srpfl.rounds import State
from srpfl.split import Params

Record = TypeVar("Record", RoundRecord, EvaluationRecord)
Counts = Sequence[Sequence[int]]
CONFIG, PARTITION, ROUNDS, EVALUATIONS, TIMING, LOCK = (
    "config.json",
    "partition.json",
    "rounds.jsonl",
    "evaluations.jsonl",
    "timing.jsonl",
    ".lock",
)

# What every run's config has, whoever wrote it.
ALWAYS = {"name": (str,), "headline": (str,), "communication": (int, float), "seed": (int,)}


def on_stderr(text: str) -> None:
    """Standard output belongs to results."""
    print(f"srpfl: {text}", file=sys.stderr)


class RunFolder:
    """Where a run keeps what it has done."""

    def __init__(self, path: Path, *, say: Callable[[str], None] = on_stderr) -> None:
        self.path, self._say = path, say
        self._lock: IO[str] | None = None

    def create(self, config: dict[str, Any], counts: Counts | None = None) -> None:
        """Claim an empty or new folder for a run."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if (self.path / CONFIG).exists():
                raise RunFolderError(
                    f"{self.path} already holds a run: choose another folder, "
                    "or go on with that run by --resume"
                )
            if any(not _ours(entry.name) for entry in self.path.iterdir()):
                raise RunFolderError(
                    f"{self.path} is not empty and holds no run: choose another folder"
                )
        except OSError as error:
            raise RunFolderError(f"cannot write to {self.path}: {error.strerror}") from error
        self._claim()
        if counts is not None:
            checkpoint.write_text(self.path / PARTITION, json.dumps(counts) + "\n")
        # Last, because a folder with a config holds a run.
        checkpoint.write_text(self.path / CONFIG, json.dumps(config, indent=2) + "\n")

    def check_same(self, config: dict[str, Any]) -> None:
        """Refuse to go on with another run than the folder's. What a folder or its options do not
        say, because they are older, is taken to be the same."""
        held = self.config()
        changed = [
            key for key, value in held.items() if key != "options" and config.get(key) != value
        ]
        options = config.get("options") or {}
        if any(options.get(name) != value for name, value in (held.get("options") or {}).items()):
            changed.append("options")
        if changed:
            raise RunFolderError(
                f"{self.path} holds another run (it differs in {', '.join(changed)}): "
                "choose another folder"
            )

    def config(self) -> dict[str, Any]:
        """What the run was asked to do."""
        try:
            config: dict[str, Any] = json.loads((self.path / CONFIG).read_text())
        except FileNotFoundError:
            raise RunFolderError(f"{self.path} holds no run (there is no {CONFIG})") from None
        except (OSError, ValueError) as error:
            raise RunFolderError(f"cannot read {self.path / CONFIG}: {error}") from error
        if not isinstance(config, dict) or any(
            type(config.get(name)) not in kinds for name, kinds in ALWAYS.items()
        ):
            raise RunFolderError(f"{self.path / CONFIG} is damaged: it is not the config of a run")
        return config

    def counts(self) -> Counts | None:
        """Training points by client and class; None where they are not known."""
        try:
            counts: Counts = json.loads((self.path / PARTITION).read_text())
        except (OSError, ValueError):  # only a picture depends on it
            return None
        rows = isinstance(counts, list) and all(isinstance(row, list) for row in counts)
        return counts if rows else None

    def add(self, record: RoundRecord | EvaluationRecord) -> None:
        name = ROUNDS if isinstance(record, RoundRecord) else EVALUATIONS
        self._append(name, to_line(record))

    def add_timing(self, round: int, seconds: float) -> None:
        self._append(TIMING, json.dumps({"round": round, "seconds": round_off(seconds)}) + "\n")

    def rounds(self) -> list[RoundRecord]:
        return self._records(ROUNDS, RoundRecord)

    def evaluations(self) -> list[EvaluationRecord]:
        return self._records(EVALUATIONS, EvaluationRecord)

    def save(self, state: State, parts: PersonalParts) -> None:
        try:
            checkpoint.save(self.path, state, parts)
        except (OSError, SafetensorError) as error:  # the latter also for a full disk
            reason = getattr(error, "strerror", None) or error
            raise RunFolderError(f"cannot save the state to {self.path}: {reason}") from error

    def restore(self, initial: Params) -> tuple[State, PersonalParts] | None:
        """Go back to the last good state: records after it are cut off, to be made again."""
        self._claim()
        rounds, evaluations = self.rounds(), self.evaluations()
        whole = self._whole(len(rounds), evaluations)
        saved = checkpoint.newest(self.path)
        found = checkpoint.load(self.path, initial, rounds=whole, say=self._say)
        reached = found[0].round if found else 0
        if reached < max(saved, len(rounds)):
            # One or the other was lost, or the run was stopped between the two.
            self._say(
                f"the records end after round {whole} and the last good state is that after round "
                f"{reached}: going on from there"
            )
        checkpoint.forget_after(self.path, reached)
        for name, records in ((ROUNDS, rounds), (EVALUATIONS, evaluations)):
            kept = [to_line(record) for record in records if record.round <= reached]
            checkpoint.write_text(self.path / name, "".join(kept))
        return found

    def release(self) -> None:
        """Let other processes write here again."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _claim(self) -> None:
        """Make sure that nobody else writes to this run; the system forgets the lock with us."""
        try:
            self._lock = (self.path / LOCK).open("w")
            _lock(self._lock)
        except BlockingIOError:
            self.release()
            raise RunFolderError(
                f"another process is playing the run in {self.path}: wait for it, or stop it"
            ) from None
        except OSError as error:
            raise RunFolderError(f"cannot write to {self.path}: {error.strerror}") from error

    def _whole(self, rounds: int, evaluations: Sequence[EvaluationRecord]) -> int:
        """How many rounds have all their records, with the evaluations that were due."""
        config, done = self.config(), {(record.round, record.kind) for record in evaluations}
        missing: list[int] = [
            due
            for due in config.get("evaluate_at", [])
            for kind in config.get("evaluations", [])
            if (due, kind) not in done
        ]
        return min([rounds, *(due - 1 for due in missing)])

    def _append(self, name: str, line: str) -> None:
        try:
            with (self.path / name).open("a") as file:
                file.write(line)
        except OSError as error:
            raise RunFolderError(f"cannot write {self.path / name}: {error.strerror}") from error

    def _records(self, name: str, kind: type[Record]) -> list[Record]:
        """All whole records; what follows a broken line is not trusted."""
        path = self.path / name
        if not path.exists():
            return []
        records: list[Record] = []
        try:
            lines = path.read_bytes().splitlines(keepends=True)
        except OSError as error:
            raise RunFolderError(f"cannot read {path}: {error.strerror}") from error
        for number, line in enumerate(lines, start=1):
            try:
                if not line.endswith(b"\n"):
                    raise ValueError("it is cut short")
                record = kind(**json.loads(line))
                check_types(record)
                if isinstance(record, RoundRecord) and record.round != number:
                    raise ValueError(f"it is round {record.round}")
                records.append(record)
            except (ValueError, TypeError) as error:
                self._say(f"{path}, line {number}, is damaged ({error}): it is left out")
                break
        return records


def _ours(name: str) -> bool:
    """What a start that came to nothing can leave behind; the system may have dot files too."""
    return name.startswith(".") or name == PARTITION


def round_off(seconds: float) -> float:
    return round(seconds, 3)


def _lock(file: IO[str]) -> None:
    if sys.platform != "win32":  # which has no such lock; there it is left to the user
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

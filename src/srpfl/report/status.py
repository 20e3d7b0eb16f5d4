"""How a run stands: finished, running, stopped, or diverged and why."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from srpfl.errors import RunFolderError
from srpfl.runs.files import ROUNDS, read_bytes
from srpfl.runs.folder import DIVERGED, RunFolder
from srpfl.runs.results import Results

LOCKED = sys.platform != "win32"  # elsewhere nobody can tell who is playing a run
RECENT = 60.0  # seconds since the last round, after which a run there is taken to have stopped


def status(run: Results, folder: Path | None = None) -> dict[str, Any]:
    """The state in a word, what there is to say about it, and the seconds since the last round
    (None where nobody knows)."""
    if is_over(run):
        return {"state": "finished", "why": "", "age": None}
    if folder is None:
        return {"state": "unfinished", "why": "", "age": None}
    age = _age(folder)
    if why := _diverged(folder):
        return {"state": "diverged", "why": why, "age": age}
    playing = RunFolder(folder).in_use() if LOCKED else age is not None and age < RECENT
    return {"state": "running" if playing else "stopped?", "why": "", "age": age}


def is_over(run: Results) -> bool:
    """Whether the run has played all its rounds or come to its target."""
    stop = run.config.get("stop_at")
    done = len(run.rounds) >= planned(run)
    return done or (stop is not None and any(run.reaches(p.value, stop) for p in run.scores))


def planned(run: Results) -> int:
    """How many rounds the run is to have; those that it has where its config does not say."""
    rounds = run.config.get("rounds")
    return rounds if type(rounds) is int and rounds > 0 else len(run.rounds)


def _age(folder: Path) -> float | None:
    try:
        return max(0.0, round(time.time() - (folder / ROUNDS).stat().st_mtime, 1))
    except OSError:
        return None


def _diverged(folder: Path) -> str:
    """What a run that diverged left as a note."""
    try:
        text = read_bytes(folder / DIVERGED).decode(errors="replace").strip()
    except (OSError, ValueError, RunFolderError):  # the latter for a link or a pipe
        return ""
    return text[:400]

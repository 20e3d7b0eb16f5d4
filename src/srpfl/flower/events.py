"""What happens beside the rounds: who came, who left, whose answer was refused and why; and how it
is said, in lines for people or, with SRPFL_LOG=json, one JSON object per line for machines.

Flower keeps what its server app prints (`flwr log`) and shows it to nobody else: with
SRPFL_LOG_FILE the lines also go to a file, from where an operator's collector takes them."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from srpfl.flower.texts import harmless
from srpfl.runs.files import EVENTS, append, refuse_link

LEVELS = ("debug", "info", "warning", "error")
# All that can happen, to be counted from the beginning. A warning is what an operator should look
# at; everything else is the daily life of a federation.
KINDS = {
    "failed": "warning",
    "few": "warning",
    "gave up": "info",
    "gone on": "warning",
    "joined": "info",
    "late": "info",
    "left": "info",
    "lost": "warning",
    "not evaluated": "info",
    "not settled": "warning",
    "not unmasked": "warning",
    "other version": "info",
    "outweighs": "warning",
    "refused": "warning",
    "revealed": "info",
    "waits": "info",
}


def say(text: str, *, level: str = "info", kind: str = "note", **values: Any) -> None:
    """One line of the log: SRPFL_LOG=json makes it JSON, SRPFL_LOG_LEVEL=warning leaves out what
    is less than that, SRPFL_LOG_FILE=PATH adds it to a file."""
    least = os.environ.get("SRPFL_LOG_LEVEL", "info").lower()
    if LEVELS.index(level) < LEVELS.index(least if least in LEVELS else "info"):
        return
    if os.environ.get("SRPFL_LOG", "").lower() == "json":
        entry = {"at": time.time(), "level": level, "kind": kind, "text": text, **values}
        line = json.dumps(entry)
    else:
        line = f"srpfl: {text}"
    print(line, flush=True)
    if path := os.environ.get("SRPFL_LOG_FILE"):
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError as error:  # a full disk there must not end a run
            print(f"srpfl: cannot write {path}: {error.strerror}", flush=True)


class Events:
    """Says each event, counts it, and keeps it in the run folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.path = folder / EVENTS if folder is not None else None
        self.counts = _counted(self.path) if self.path is not None else Counter[str]()

    def note(self, what: str, why: str = "", *, client: int | None = None, round: int) -> None:
        """``what`` is one of a few words, such as "refused" or "late"."""
        self.counts[what] += 1
        why = harmless(why)
        who = "" if client is None else f"client {client}: "
        say(
            f"round {round + 1}: {who}{what}{f' ({why})' if why else ''}",
            level=KINDS.get(what, "info"),
            kind=what,
            round=round + 1,
            client=client,
        )
        if self.path is not None:
            entry = {"at": time.time(), "round": round + 1, "client": client, "what": what}
            append(self.path, json.dumps({**entry, "why": why}) + "\n")

    def summary(self) -> str:
        """How often what happened.

        >>> Events().summary()
        'nothing happened'
        """
        counted = ", ".join(f"{what}: {count}" for what, count in sorted(self.counts.items()))
        return counted or "nothing happened"


def _counted(path: Path) -> Counter[str]:
    """What happened before the server was started again: counts that fell would be taken for new
    ones by Prometheus."""
    counts = Counter[str]()
    refuse_link(path)
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                with suppress(
                    ValueError, KeyError, TypeError
                ):  # cut off when the server was killed
                    counts[str(json.loads(line)["what"])] += 1
    return counts

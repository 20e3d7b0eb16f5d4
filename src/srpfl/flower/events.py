"""What happens beside the rounds: who came, who left, whose answer was refused and why; and how it
is said, in lines for people or, with SRPFL_LOG=json, one JSON object per line for machines."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

from srpfl.flower.texts import harmless
from srpfl.runs.files import append

FILE = "events.jsonl"
LEVELS = ("debug", "info", "warning", "error")
# What an operator should look at; everything else is the daily life of a federation.
WARNINGS = {
    "refused",
    "failed",
    "lost",
    "outweighs",
    "few",
    "gone on",
    "not settled",
    "not unmasked",
}


def say(text: str, *, level: str = "info", kind: str = "note", **values: Any) -> None:
    """One line of the log: SRPFL_LOG=json makes it JSON, SRPFL_LOG_LEVEL=warning leaves out what
    is less than that."""
    least = os.environ.get("SRPFL_LOG_LEVEL", "info").lower()
    if LEVELS.index(level) < LEVELS.index(least if least in LEVELS else "info"):
        return
    if os.environ.get("SRPFL_LOG", "").lower() == "json":
        entry = {"at": time.time(), "level": level, "kind": kind, "text": text, **values}
        print(json.dumps(entry), flush=True)
    else:
        print(f"srpfl: {text}", flush=True)


class Events:
    """Says each event, counts it, and keeps it in the run folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.path = folder / FILE if folder is not None else None
        self.counts: Counter[str] = Counter()

    def note(self, what: str, why: str = "", *, client: int | None = None, round: int) -> None:
        """``what`` is one of a few words, such as "refused" or "late"."""
        self.counts[what] += 1
        why = harmless(why)
        who = "" if client is None else f"client {client}: "
        say(
            f"round {round + 1}: {who}{what}{f' ({why})' if why else ''}",
            level="warning" if what in WARNINGS else "info",
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

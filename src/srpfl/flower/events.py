"""What happens beside the rounds: who came, who left, whose answer was refused and why."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

FILE = "events.jsonl"


class Events:
    """Says each event, counts it, and keeps it in the run folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.path = folder / FILE if folder is not None else None
        self.counts: Counter[str] = Counter()

    def note(self, what: str, why: str = "", *, client: int | None = None, round: int) -> None:
        """``what`` is one of a few words, such as "refused" or "late"."""
        self.counts[what] += 1
        who = "" if client is None else f"client {client}: "
        print(f"srpfl: round {round + 1}: {who}{what}{f' ({why})' if why else ''}", flush=True)
        if self.path is not None:
            entry = {"at": time.time(), "round": round + 1, "client": client, "what": what}
            with self.path.open("a") as file:
                file.write(json.dumps({**entry, "why": why}) + "\n")

    def summary(self) -> str:
        """How often what happened.

        >>> Events().summary()
        'nothing happened'
        """
        counted = ", ".join(f"{what}: {count}" for what, count in sorted(self.counts.items()))
        return counted or "nothing happened"

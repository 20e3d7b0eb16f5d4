"""How a deployment is doing, written into its run folder every few seconds: see status.py."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from srpfl.flower.desk import Desk
from srpfl.flower.status import FILE, Status
from srpfl.flower.texts import harmless
from srpfl.flower.wire import VERSION
from srpfl.runs.files import write_text

EVERY = 5.0  # seconds between two of them


class Reporter:
    """Writes the status down while a run goes on."""

    def __init__(self, folder: Path, desk: Desk, about: dict[str, Any]) -> None:
        self.path, self.desk, self.about = folder / FILE, desk, about
        self._next = 0.0
        self.done = 0

    def report(self) -> None:
        """From time to time, as often as it is called."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + EVERY
            self.write("running")

    def write(self, state: str, why: str = "") -> None:
        desk, experiment = self.desk, self.desk.experiment
        status = Status(
            at=time.time(),
            state=state,
            why=why,
            name=experiment.name,
            rounds=experiment.rounds,
            done=self.done,
            population=experiment.clients,
            present=len(desk.roll.node_of),
            idle=len(desk.idle),
            events=dict(desk.events.counts),
            bytes_received=desk.bytes,
            parts_kept=desk.kept,
            pid=os.getpid(),
            version=VERSION,
            **self.about,
        )
        write_text(self.path, json.dumps(asdict(status)) + "\n")

    def ended(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """The last word: the run is over, was stopped, or why it failed."""
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            self.write("stopped")
        else:
            self.write("over" if error is None else "failed", "" if error is None else _said(error))


def _said(error: BaseException) -> str:
    return harmless(error) or type(error).__name__

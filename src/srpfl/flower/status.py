"""How a deployment is doing, in its run folder: written by the server every few seconds, read by
`srpfl deploy status`, `health` and `metrics`, which need no line to it."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from srpfl.errors import RunFolderError
from srpfl.flower.desk import Desk
from srpfl.flower.texts import harmless
from srpfl.runs.files import write_text

FILE = "status.json"
EVERY = 5.0  # seconds between two of them
SILENT = 60.0  # seconds without one after which a server counts as dead


@dataclass(frozen=True)
class Status:
    """The server, as it last said."""

    at: float  # when, in seconds of the epoch
    state: str  # "running", "over", "stopped" or "failed"
    why: str = ""  # it failed
    name: str = ""
    rounds: int = 0  # to be played
    done: int = 0
    population: int = 0
    present: int = 0
    idle: int = 0
    events: dict[str, int] = field(default_factory=dict)
    bytes_received: int = 0
    parts_kept: int = 0  # clients have confirmed so many times that they keep what counted
    pid: int = 0
    flower_run: str = ""
    run_config: dict[str, Any] = field(default_factory=dict)
    version: str = ""

    @property
    def alive(self) -> bool:
        return self.state == "running" and time.time() - self.at < SILENT


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
            version=version("srpfl"),
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


def read_status(folder: Path) -> Status:
    """What the server of a run last said of itself."""
    path = folder / FILE
    try:
        said = json.loads(path.read_text())
        known = {each.name for each in fields(Status)}
        return Status(**{name: value for name, value in said.items() if name in known})
    except FileNotFoundError:
        raise RunFolderError(
            f"{folder} is no folder of a deployment, or its server has not begun: there is no "
            f"{FILE} in it"
        ) from None
    except (ValueError, TypeError, AttributeError) as error:
        raise RunFolderError(f"{path} cannot be read ({error})") from None


def trouble(status: Status) -> str | None:
    """What is wrong with a deployment, if anything.

    >>> trouble(Status(at=0.0, state="running", name="trial"))
    'the server of trial has not been heard of for more than 60 s: start the run again'
    """
    if status.state == "over":
        return None
    if status.state == "failed":
        return f"the server of {status.name} failed: {status.why}"
    if status.state == "stopped":
        return (
            f"the run of {status.name} was stopped after {status.done} of {status.rounds} rounds: "
            "srpfl deploy resume continues it"
        )
    if not status.alive:
        return (
            f"the server of {status.name} has not been heard of for more than {SILENT:g} s: "
            "start the run again"
        )
    if not status.present:
        return f"the server of {status.name} runs, and no client is there: start nodes"
    return None

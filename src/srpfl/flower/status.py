"""How a deployment is doing, as its run folder says: read by `srpfl deploy status`, `health` and
`metrics`, which need no line to the server. A probe asks every few seconds, so neither PyTorch nor
Flower is imported for it."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from srpfl.errors import RunFolderError

FILE = "status.json"
SILENT = 60.0  # seconds without one after which a server counts as dead
LAST = 20.0  # seconds for a server that was stopped to say so itself


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


def begun_again(folder: Path, before: Status) -> None:
    """Until the new server says something itself, the run counts as at work: it is not started
    twice, and who follows it does not see the end of the old one."""
    from srpfl.runs.files import write_text

    if read_status(folder) == before:
        at_work = replace(before, state="running", why="", at=time.time())
        write_text(folder / FILE, json.dumps(asdict(at_work)) + "\n")


def stopped(folder: Path) -> None:
    """A server that Flower has stopped says so itself; where it was ended before it could, it is
    said in its place, or the run would count as at work."""
    from srpfl.runs.files import write_text

    limit = time.monotonic() + LAST
    while (said := read_status(folder)).state == "running":
        if time.monotonic() > limit:
            write_text(folder / FILE, json.dumps(asdict(replace(said, state="stopped"))) + "\n")
            return
        time.sleep(0.2)


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
        refused = "; some were refused, events.jsonl says why"
        then = refused if status.events.get("refused") else ""
        return f"the server of {status.name} runs, and no client is there: start nodes{then}"
    return None

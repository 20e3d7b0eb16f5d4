"""One worker's share of a sweep: a run, or some that share a device."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from srpfl.errors import DivergedError, SrpflError
from srpfl.loop.together import simulate_together
from srpfl.options.config import Config
from srpfl.options.experiment import experiment
from srpfl.runs.files import write_text
from srpfl.runs.folder import CONFIG, DIVERGED

WORKER = ".worker"  # in a run's folder: where it is played

Item = list[tuple[str, dict[str, Any]]]  # folders and options


def work(item: Item) -> list[str | None]:
    """Play or finish some runs, and return for each what went wrong, if anything did."""
    found: list[str | None] = [None] * len(item)
    ready: list[int] = []
    chosen: list[dict[str, Any]] = []
    for number, (folder, options) in enumerate(item):
        try:
            chosen.append(_prepared(Path(folder), options))
            ready.append(number)
        except (SrpflError, OSError) as error:
            found[number] = str(error)
    for number, outcome in zip(ready, _together(chosen), strict=True):
        if isinstance(outcome, Exception):
            found[number] = _told(Path(item[number][0]), outcome)
    return found


def _prepared(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / WORKER, f"{socket.gethostname()} {os.getpid()}\n")
    resume = (folder / CONFIG).exists()
    return {**experiment(Config(**options)), "out": folder, "resume": resume, "progress": False}


def _together(runs: Sequence[dict[str, Any]]) -> Sequence[Any]:
    if not runs:
        return []
    try:
        return simulate_together(runs)
    except SrpflError as error:  # of all of them
        return [error] * len(runs)


def _told(folder: Path, error: Exception) -> str:
    if isinstance(error, DivergedError):  # a result too: it is not tried again
        write_text(folder / DIVERGED, f"{error}; delete this folder to try again\n")
    return str(error) if isinstance(error, SrpflError) else f"{type(error).__name__}: {error}"


def end_with(parent: int, threads: int | None = 1) -> None:
    """Prepare a worker process: one thread to compute with, and no life after its parent's."""
    import torch

    if threads:
        torch.set_num_threads(threads)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)

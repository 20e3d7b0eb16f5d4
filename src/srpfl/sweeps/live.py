"""A live table of what is played where, with the time left by the pace so far."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from srpfl.runs.folder import ROUNDS, RunFolder
from srpfl.sweeps.plan import Planned
from srpfl.sweeps.work import WORKER


@contextlib.contextmanager
def live_table(*, hidden: bool = False) -> Iterator[Callable[[Sequence[Planned]], None] | None]:
    """What a sweep calls to have its table shown; None where there is no terminal."""
    if hidden or not sys.stderr.isatty():
        yield None
        return
    with Live(console=Console(file=sys.stderr), auto_refresh=False, transient=True) as live:
        yield shown(live.update)


def shown(update: Callable[..., Any]) -> Callable[[Sequence[Planned]], None]:
    """Keeps a table of what is played where, with the time left by the pace so far."""
    began, rounds_before = time.monotonic(), -1

    def look(plan: Sequence[Planned]) -> None:
        nonlocal rounds_before
        played = [_rounds(run) for run in plan]
        total = sum(run.rounds for run in plan)
        if rounds_before < 0:
            rounds_before = sum(played)
        new, left = sum(played) - rounds_before, total - sum(played)
        pace = (time.monotonic() - began) / new if new else None
        clock = timedelta(seconds=round(pace * left)) if pace is not None else "-:--:--"
        over = sum(count >= run.rounds for count, run in zip(played, plan, strict=True))
        table = Table(title=f"{over} of {len(plan)} runs, {clock} left")
        for column in ("run", "rounds", "where"):
            table.add_column(column)
        for count, run in zip(played, plan, strict=True):
            if count < run.rounds and RunFolder(run.folder).in_use():
                table.add_row(run.folder.name, f"{count} of {run.rounds}", _where(run))
        update(table, refresh=True)

    return look


def _rounds(run: Planned) -> int:
    try:
        return (run.folder / ROUNDS).read_bytes().count(b"\n")
    except OSError:
        return 0


def _where(run: Planned) -> str:
    try:
        host, _, process = (run.folder / WORKER).read_text().strip().partition(" ")
    except OSError:
        return ""
    return f"{host}, process {process}"

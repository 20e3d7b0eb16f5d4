"""srpfl sweep: many runs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from srpfl.sweeps.plan import Planned
    from srpfl.sweeps.result import Sweep


def sweep(
    study: Annotated[
        Path, typer.Argument(help="TOML file with parts common, grid and runs", metavar="STUDY")
    ],
    out: Annotated[
        Path | None, typer.Option(help="folder for the runs (default: the study's own `out`)")
    ] = None,
    on: Annotated[str, typer.Option(help="processes, turn or ray")] = "processes",
    workers: Annotated[
        int | None, typer.Option(help="runs at a time (default: as many as there are cores)")
    ] = None,
    together: Annotated[int, typer.Option(help="runs that share a worker and its device")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
    quiet: Annotated[bool, typer.Option(help="no live table")] = False,
) -> None:
    """Play many runs: every combination of a grid, or a list.

    Called again, it plays what is missing and continues what was interrupted.

    Examples:

      srpfl sweep study.toml

      srpfl sweep study.toml --on ray --out runs/study
    """
    from rich.console import Console
    from rich.live import Live

    from srpfl.sweeps import sweep as play

    choices: Any = {"out": out, "on": on, "workers": workers, "together": together}
    hidden = quiet or not sys.stderr.isatty()
    if hidden:
        done = play(study, **choices)
    else:
        with Live(console=Console(file=sys.stderr), auto_refresh=False, transient=True) as live:
            done = play(study, **choices, watch=_shown(live.update))
    if as_json:
        print(json.dumps(_told(done)))
    else:
        Console().print(_summary(done))
    failed = [row for row in done.rows if row.error is not None and row.state == "failed"]
    for row in failed:
        print(f"srpfl: {row.folder}: {row.error}", file=sys.stderr)
    if failed:
        raise SystemExit(1)


def _told(done: Sweep) -> dict[str, Any]:
    rows = [{**r.varied, "folder": str(r.folder), "state": r.state} for r in done.rows]
    return {"out": str(done.out), "complete": done.complete, "runs": rows}


def _summary(done: Sweep) -> Table:
    from rich.table import Table

    from srpfl.runs.metric import shown
    from srpfl.runs.run import Run

    table = Table(title=f"{len(done.rows)} runs in {done.out}")
    for column in ("run", "state", "rounds", "value", "simulated time"):
        table.add_column(column, justify="left" if column in ("run", "state") else "right")
    for row in done.rows:
        cells: list[str] = []
        if row.state == "done":
            run = Run.load(row.folder)
            value = shown(run.metric, run.scores[-1].value) if run.scores else ""
            cells = [str(len(run.rounds)), value, f"{run.time():.1f}"]
        table.add_row(row.folder.name, row.state, *cells)
    return table


def _shown(update: Callable[..., Any]) -> Callable[[Sequence[Planned]], None]:
    """Keeps a table of what is played where, with the time left by the pace so far."""
    began, rounds_before = time.monotonic(), -1

    def look(plan: Sequence[Planned]) -> None:
        nonlocal rounds_before
        from rich.table import Table

        from srpfl.runs.folder import RunFolder

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
    from srpfl.runs.folder import ROUNDS

    try:
        return (run.folder / ROUNDS).read_bytes().count(b"\n")
    except OSError:
        return 0


def _where(run: Planned) -> str:
    from srpfl.sweeps.work import WORKER

    try:
        host, _, process = (run.folder / WORKER).read_text().strip().partition(" ")
    except OSError:
        return ""
    return f"{host}, process {process}"

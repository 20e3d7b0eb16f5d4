"""srpfl sweep: many runs."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

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

    from srpfl.sweeps import sweep as play
    from srpfl.sweeps.live import live_table

    choices: Any = {"out": out, "on": on, "workers": workers, "together": together}
    # Standard output belongs to the result, and Ray would say there that a worker has died.
    with contextlib.redirect_stdout(sys.stderr), live_table(hidden=quiet) as watch:
        done = play(study, **choices, watch=watch)
    if as_json:
        print(json.dumps(_told(done)))
    else:
        console = Console(highlight=False)
        console.print(_summary(done))
        console.print(f"next: srpfl compare {shlex.quote(str(done.out))}", soft_wrap=True)
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

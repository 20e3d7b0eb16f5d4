"""srpfl report: runs as one HTML file."""

from __future__ import annotations

import json
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="folders of runs, or folders that hold several")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="file to write (default: report.html, in the folder if there is one)"),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(help="accuracy, or value of the metric, to reach (default: as srpfl compare)"),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="heading (default: the methods and their data)")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="method that speed-ups are over (default: as srpfl compare)")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="open it in a browser")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
) -> None:
    """Show runs in one self-contained HTML file, which opens offline in any browser.

    It has a slider for C, the speed-ups, who was waited for, and a replay.

    Examples:

      srpfl report runs/demo --open

      srpfl report runs/first runs/second --out comparison.html
    """
    from srpfl.report import find_runs, write_report
    from srpfl.runs.files import refuse_link

    folders = find_runs(runs)
    file = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    if out is None:  # the folder may come from anybody
        refuse_link(file)
    write_report(folders, file, target=target, title=title, baseline=baseline)
    if as_json:
        print(json.dumps({"report": str(file), "runs": [str(folder) for folder in folders]}))
    else:
        count = "1 run" if len(folders) == 1 else f"{len(folders)} runs"
        print(f"{count}: {file}")
    if show and not webbrowser.open(file.resolve().as_uri()):
        print("there is no browser to open it with", file=sys.stderr)

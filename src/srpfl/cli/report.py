"""srpfl report: runs as one HTML file."""

from __future__ import annotations

import json
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
        typer.Option(help="accuracy to reach (default: that of srpfl compare)"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
) -> None:
    """Show runs in one self-contained HTML file, which opens offline in any browser.

    Examples:

      srpfl report runs/demo

      srpfl report runs/first runs/second --out comparison.html
    """
    from srpfl.comparison import check_target
    from srpfl.report import find_runs, write_report

    if target is not None:
        check_target(target)
    folders = find_runs(runs)
    file = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    write_report(folders, file, target=target)
    if as_json:
        print(json.dumps({"report": str(file), "runs": [str(folder) for folder in folders]}))
    else:
        count = "1 run" if len(folders) == 1 else f"{len(folders)} runs"
        print(f"{count}: {file}")

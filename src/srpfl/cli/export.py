"""srpfl export: a run's records for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from srpfl.run import Run


def export(
    runs: Annotated[
        list[Path], typer.Argument(help="folders of runs, or folders that hold several")
    ],
    to: Annotated[str, typer.Option(help="csv, parquet, tensorboard, mlflow or wandb")] = "csv",
    out: Annotated[Path, typer.Option(help="folder to write to")] = Path("export"),
    communication: Annotated[
        float | None,
        typer.Option(help="C of the times in csv and parquet (default: each run's own)"),
    ] = None,
) -> None:
    """Write runs as tables (CSV, Parquet) or into an experiment tracker's local files.

    Examples:

      srpfl export runs/demo --to parquet --out tables

      srpfl export runs/demo --to tensorboard --out logs
    """
    from srpfl.errors import unknown
    from srpfl.export import FORMATS
    from srpfl.export import export as write_tables
    from srpfl.report import find_runs
    from srpfl.report.style import styles
    from srpfl.run import Run

    if to not in (*FORMATS, *TRACKERS):
        raise unknown("format", to, (*FORMATS, *TRACKERS))
    loaded = [Run.load(folder) for folder in find_runs(runs)]
    if to in FORMATS:
        for run, look in zip(loaded, styles(loaded), strict=True):
            place = out / look.label.replace("/", "-") if len(loaded) > 1 else out
            write_tables(run, place, format=to, communication=communication)
    else:
        _track(loaded, to, out)
    count = "1 run" if len(loaded) == 1 else f"{len(loaded)} runs"
    print(f"{count}: {out}")


TRACKERS = ("tensorboard", "mlflow", "wandb")


def _track(runs: list[Run], to: str, out: Path) -> None:
    from srpfl.trackers import MLflow, TensorBoard, Tracker, WandB, replay

    out.mkdir(parents=True, exist_ok=True)
    tracker: Tracker
    if to == "tensorboard":
        tracker = TensorBoard(out)
    elif to == "mlflow":
        tracker = MLflow(uri=f"sqlite:///{out / 'mlflow.db'}")
    else:
        tracker = WandB(folder=out)
    for run in runs:
        replay(run, tracker)

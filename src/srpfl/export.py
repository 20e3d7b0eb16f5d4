"""Records as tables, for other tools: CSV, Parquet, pandas."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srpfl.errors import ConfigError, RunFolderError, unknown
from srpfl.run import Run

if TYPE_CHECKING:
    import pandas

Row = dict[str, Any]


def evaluations(run: Run, cost: float) -> Iterator[Row]:
    """One row for each evaluation."""
    for record in run.evaluations:
        yield {
            "round": record.round,
            "kind": record.kind,
            "time": record.time(cost),
            "accuracy": record.accuracy,
        }


def clients(run: Run, cost: float) -> Iterator[Row]:
    """One row for each client in each evaluation."""
    for record in run.evaluations:
        for client, (accuracy, tested) in enumerate(
            zip(record.clients, record.tested, strict=True)
        ):
            yield {
                "round": record.round,
                "kind": record.kind,
                "time": record.time(cost),
                "client": client,
                "accuracy": accuracy,
                "tested": tested,
            }


def rounds(run: Run, cost: float) -> Iterator[Row]:
    """One row for each round."""
    for record in run.rounds:
        yield {
            "round": record.round,
            "stage": record.stage,
            "wait": record.wait,
            "asked": record.asked,
            "participants": len(record.participants),
            "late": len(record.late),
            "loss": record.loss,
            "duration": record.duration,
            "time": record.time(cost),
        }


def arrivals(run: Run, cost: float) -> Iterator[Row]:
    """One row for each answer, counted or late; ``after`` is since the round began."""
    for record in run.rounds:
        for counted, who, when in (
            (True, record.participants, record.arrivals),
            (False, record.late, record.late_arrivals),
        ):
            for client, after in zip(who, when, strict=True):
                yield {
                    "round": record.round,
                    "client": client,
                    "after": after,
                    "counted": counted,
                }


TABLES: dict[str, Callable[[Run, float], Iterator[Row]]] = {
    "evaluations": evaluations,
    "clients": clients,
    "rounds": rounds,
    "arrivals": arrivals,
}
FORMATS = ("csv", "parquet")


def to_pandas(run: Run, table: str, cost: float) -> pandas.DataFrame:
    """One of the tables as a data frame."""
    if table not in TABLES:
        raise unknown("table", table, TABLES)
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise ConfigError("a data frame needs pandas: pip install pandas") from error
    return pandas.DataFrame(TABLES[table](run, cost))


def export(
    run: Run, folder: str | Path, *, format: str = "csv", communication: float | None = None
) -> list[Path]:
    """Write every table into a folder, and return the files.

    >>> import srpfl, tempfile
    >>> run = srpfl.simulate(
    ...     data=srpfl.data.load("digits", clients=5), model=srpfl.models.MLP(64, (8,), classes=10),
    ...     algorithm=srpfl.FedAvg(), rounds=1,
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in export(run, folder)]
    ['evaluations.csv', 'clients.csv', 'rounds.csv', 'arrivals.csv']
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    cost = run.communication if communication is None else communication
    if run.config.get("sees_communication") and cost != run.communication:
        raise ConfigError(
            f"this run's policy looks at C = {run.communication:g}: another C needs another run"
        )
    write = _write_csv if format == "csv" else _write_parquet
    written = []
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, table in TABLES.items():
            path = Path(folder) / f"{name}.{format}"
            if rows := list(table(run, cost)):
                write(rows, path)
                written.append(path)
    except OSError as error:
        raise RunFolderError(f"cannot write to {folder}: {error.strerror or error}") from error
    return written


def _write_csv(rows: list[Row], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _write_parquet(rows: list[Row], path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)

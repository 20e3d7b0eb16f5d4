"""Records as tables, for other tools: CSV, Parquet, pandas."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srpfl.errors import ConfigError, RunFolderError, unknown
from srpfl.runs.files import write_with
from srpfl.runs.results import Results

if TYPE_CHECKING:
    import pandas

Row = dict[str, Any]


def evaluations(run: Results, cost: float) -> Iterator[Row]:
    """One row for each evaluation."""
    for record in run.evaluations:
        yield {
            "round": record.round,
            "kind": record.kind,
            "time": record.time(cost),
            "metric": record.metric,
            "value": record.value,
            "standard_error": record.error,
        }


def clients(run: Results, cost: float) -> Iterator[Row]:
    """One row for each client in each evaluation; without test samples there is no value."""
    for record in run.evaluations:
        values = zip(record.tested, record.clients, record.weights, strict=True)
        for client, value, weight in values:
            yield {
                "round": record.round,
                "kind": record.kind,
                "time": record.time(cost),
                "client": client,
                "metric": record.metric,
                "value": value if weight else None,
                "weight": weight,
            }


def rounds(run: Results, cost: float) -> Iterator[Row]:
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


def arrivals(run: Results, cost: float) -> Iterator[Row]:
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


TABLES: dict[str, Callable[[Results, float], Iterator[Row]]] = {
    "evaluations": evaluations,
    "clients": clients,
    "rounds": rounds,
    "arrivals": arrivals,
}
FORMATS = ("csv", "parquet")


def to_pandas(run: Results, table: str, cost: float) -> pandas.DataFrame:
    """One of the tables as a data frame."""
    if table not in TABLES:
        raise unknown("table", table, TABLES)
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise ConfigError("a data frame needs pandas: pip install 'srpfl[pandas]'") from error
    return pandas.DataFrame(TABLES[table](run, cost))


def export(
    run: Results, folder: str | Path, *, format: str = "csv", communication: float | None = None
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
    cost = run.cost(communication)
    write = _write_csv if format == "csv" else _write_parquet
    written = []
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, table in TABLES.items():
            path = Path(folder) / f"{name}.{format}"
            rows = table(run, cost)
            if (first := next(rows, None)) is not None:
                table_of = partial(write, list(first), itertools.chain([first], rows))
                write_with(table_of, path)  # whole, or not at all
                written.append(path)
    except OSError as error:
        raise RunFolderError(f"cannot write to {folder}: {error.strerror or error}") from error
    return written


def _write_csv(columns: list[str], rows: Iterable[Row], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def _write_parquet(columns: list[str], rows: Iterable[Row], path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    table: dict[str, list[Any]] = {name: [] for name in columns}
    for row in rows:  # a dict for each would take far more memory than the records
        for name in columns:
            table[name].append(row[name])
    pyarrow.parquet.write_table(pyarrow.table(table), path)

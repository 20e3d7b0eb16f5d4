"""What came of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srpfl.errors import ConfigError
from srpfl.runs.comparison import Comparison, compare
from srpfl.runs.run import Run
from srpfl.sweeps.plan import Options

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Row:
    """One run of a sweep."""

    folder: Path
    varied: Options  # what sets it apart from the others
    state: str  # "done", "diverged", "begun", "waiting" or "failed"
    error: str | None = None


@dataclass(frozen=True)
class Sweep:
    """All runs of a sweep, by their folders."""

    out: Path
    rows: Sequence[Row]

    @property
    def complete(self) -> bool:
        """Whether every run has come to its end."""
        return all(row.state in ("done", "diverged") for row in self.rows)

    @property
    def runs(self) -> list[Run]:
        """The records of the runs that have come to their end."""
        return [Run.load(row.folder) for row in self.rows if row.state == "done"]

    def compare(self, **choices: Any) -> Comparison:
        """The runs side by side, as :func:`srpfl.runs.comparison.compare` has them."""
        return compare(self.runs, **choices)

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each run: its choices, its state, its last value and its simulated time."""
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise ConfigError("a data frame needs pandas: pip install pandas") from error
        return pandas.DataFrame([self._told(row) for row in self.rows])

    def _told(self, row: Row) -> dict[str, Any]:
        told = {**row.varied, "state": row.state, "folder": str(row.folder)}
        if row.state != "done":
            return told
        run = Run.load(row.folder)
        last = run.scores[-1] if run.scores else None
        return {
            **told,
            "rounds": len(run.rounds),
            "metric": run.metric,
            "value": last.value if last else None,
            "time": run.time(),
        }

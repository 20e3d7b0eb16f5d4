"""A progress line on a terminal: stage, n, round, simulated time, accuracy, speed, time left."""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from srpfl.records import EvaluationRecord, RoundRecord
from srpfl.watchers import Watcher


class ProgressLine(Watcher):
    """Shows runs on standard error, one bar each; silent where there is no terminal."""

    def __init__(self, *, hidden: bool = False) -> None:
        self._bars = Progress(
            TextColumn("{task.description:<17}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            disable=hidden or not sys.stderr.isatty(),
        )
        self._accuracy = ""
        self._communication, self._seed = 0.0, ""

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def another(self) -> ProgressLine:
        """A bar among these for a run that is played beside others."""
        return copy.copy(self)

    def setting(self, config: Mapping[str, Any]) -> None:
        self._communication = float(config["communication"])
        self._seed = f", seed {config['seed']}"

    def begin(self, name: str, rounds: int, done: int) -> None:
        self._accuracy, self._done, self._started = "", done, time.monotonic()
        self._task = self._bars.add_task(name + self._seed, total=rounds, completed=done, status="")

    def round(self, record: RoundRecord) -> None:
        seconds = max(time.monotonic() - self._started, 1e-9)
        status = (
            f"stage {record.stage}, n = {record.wait}/{record.asked}, "
            f"time {record.time(self._communication):.1f}{self._accuracy}, "
            f"{(record.round - self._done) / seconds:.1f} rounds/s"
        )
        self._bars.update(self._task, completed=record.round, status=status)

    def evaluation(self, record: EvaluationRecord) -> None:
        if record.kind != "local":
            self._accuracy = f", accuracy {100 * record.accuracy:.1f} %"

"""A progress line on a terminal: round, time left, n, accuracy, simulated time, stage, speed."""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
)
from rich.table import Column
from rich.text import Text

from srpfl.records import EvaluationRecord, RoundRecord
from srpfl.watchers import Watcher


class TimeLeft(ProgressColumn):
    """From the mean time of the rounds so far: rich's own says nothing before the third."""

    def render(self, task: Task) -> Text:
        pace, since = task.fields["pace"], task.fields["since"]
        if pace is None or task.total is None:
            return Text("-:--:-- left")
        left = max(0.0, pace * (task.total - task.completed) - (time.monotonic() - since))
        return Text(f"{timedelta(seconds=round(left))} left")


class ProgressLine(Watcher):
    """Shows runs on standard error, one bar each; silent where there is no terminal."""

    def __init__(self, *, hidden: bool = False) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=8),
            MofNCompleteColumn(),
            TimeLeft(),
            # On a narrow terminal it is the end of the status that goes.
            TextColumn("{task.fields[status]}", table_column=Column(ratio=1, no_wrap=True)),
            expand=True,
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
        self._rounds = 0  # played since then
        self._task = self._bars.add_task(
            name + self._seed, total=rounds, completed=done, status="", pace=None, since=0.0
        )

    def round(self, record: RoundRecord) -> None:
        self._rounds = record.round - self._done
        status = (
            f"n = {record.wait}/{record.asked}{self._accuracy}, "
            f"time {record.time(self._communication):.1f}, stage {record.stage}, "
            f"{1 / self._pace():.2g} rounds/s"
        )
        self._bars.update(self._task, completed=record.round, status=status)
        self._estimate()

    def evaluation(self, record: EvaluationRecord) -> None:
        if record.kind != "local":
            self._accuracy = f", {100 * record.accuracy:.1f} %"
        self._estimate()  # evaluation takes its time too

    def _pace(self) -> float:
        """Seconds per round."""
        return max(time.monotonic() - self._started, 1e-9) / max(1, self._rounds)

    def _estimate(self) -> None:
        self._bars.update(self._task, pace=self._pace(), since=time.monotonic())

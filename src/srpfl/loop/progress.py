"""A progress line: round, time left, the metric, n, simulated time, stage, speed. On a terminal it
is a bar for each run, in a notebook a line of text that changes, in a log a line each minute."""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from rich.console import Console, ConsoleOptions
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

from srpfl.errors import printable
from srpfl.loop.watchers import Watcher, in_a_notebook
from srpfl.runs.metric import Metric
from srpfl.runs.records import EvaluationRecord, RoundRecord

LOGGED = 60.0  # seconds from line to line where there is no terminal


class TimeLeft(ProgressColumn):
    """From the mean time of the rounds so far: rich's own says nothing before the third."""

    def render(self, task: Task) -> Text:
        pace, since = task.fields["pace"], task.fields["since"]
        rest = (task.total or 0) - task.completed
        if rest <= 0:  # task.finished is not set where nothing was left to play
            return Text("done")
        if pace is None:
            return Text("-:--:-- left")
        left = max(0.0, pace * rest - (time.monotonic() - since))
        return Text(f"{timedelta(seconds=round(left))} left")


class Words(ProgressColumn):
    """As many of the words as there is room for: the last ones go first, and none is cut."""

    def render(self, task: Task) -> Fitting:
        return Fitting(task.fields["status"])


class Fitting:
    def __init__(self, words: Sequence[str]) -> None:
        self.words = words

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        shown = ""
        for word in self.words:
            longer = f"{shown}, {word}" if shown else word
            if len(longer) > options.max_width:
                break
            shown = longer
        yield Text(shown)


class ProgressLine(Watcher):
    """Shows runs on standard error: one bar each, or now and then a line where there is no
    terminal."""

    def __init__(self, *, hidden: bool = False) -> None:
        self._logs, self._logged = not hidden and not sys.stderr.isatty(), time.monotonic()
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=8),
            MofNCompleteColumn(),
            TimeLeft(),
            Words(table_column=Column(ratio=1, no_wrap=True)),
            expand=True,
            console=Console(file=sys.stderr),
            disable=hidden or not sys.stderr.isatty(),
        )
        self._communication, self._seed, self._headline = 0.0, "", ""

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
        self._headline = str(config["headline"])

    def begin(self, name: str, rounds: int, done: int) -> None:
        self._value, self._done, self._started = "", done, time.monotonic()
        self._rounds = 0  # played since then
        self._words: tuple[str, ...] = ()  # of the last round
        self._task = self._bars.add_task(
            printable(name) + self._seed,
            total=rounds,
            completed=done,
            status=(),
            pace=None,
            since=0.0,
        )

    def round(self, record: RoundRecord) -> None:
        self._rounds = record.round - self._done
        self._words = (
            f"n = {record.wait}/{record.asked}",
            f"time {record.time(self._communication):.1f}",
            f"stage {record.stage}",
            f"{1 / self._pace():.2g} rounds/s",
        )
        self._bars.update(self._task, completed=record.round)
        self._tell()

    def evaluation(self, record: EvaluationRecord) -> None:
        if record.kind == self._headline:
            metric = Metric(record.metric, record.higher_is_better)
            words = metric.shown(record.value)
            self._value = words if metric.is_share else f"{metric.title} {words}"
        self._tell()  # evaluation takes its time too

    def _pace(self) -> float:
        """Seconds per round."""
        return max(time.monotonic() - self._started, 1e-9) / max(1, self._rounds)

    def _tell(self) -> None:
        status = (*filter(None, [self._value]), *self._words)
        self._bars.update(self._task, status=status, pace=self._pace(), since=time.monotonic())
        if self._logs and time.monotonic() - self._logged >= LOGGED:
            self._logged = time.monotonic()
            print(self._line(), file=sys.stderr, flush=True)

    def _line(self) -> str:
        task = next(task for task in self._bars.tasks if task.id == self._task)
        words = f"{task.description}: round {task.completed:.0f}/{task.total:.0f}"
        return ", ".join([words, *task.fields["status"]])


class NotebookLine(ProgressLine):
    """The same below a notebook's cell, without a widget."""

    def __init__(self) -> None:
        super().__init__(hidden=True)
        self._handle: Any = None

    def begin(self, name: str, rounds: int, done: int) -> None:
        from IPython.display import display  # it is there, as we are in a notebook

        super().begin(name, rounds, done)
        self._handle = display(
            {"text/plain": f"{name}: {rounds} rounds"}, raw=True, display_id=True
        )

    def round(self, record: RoundRecord) -> None:
        super().round(record)
        self._show()

    def evaluation(self, record: EvaluationRecord) -> None:
        super().evaluation(record)
        self._show()

    def _show(self) -> None:
        self._handle.update({"text/plain": self._line()}, raw=True)


def progress_of_a_run() -> ProgressLine:
    return NotebookLine() if in_a_notebook() else ProgressLine()

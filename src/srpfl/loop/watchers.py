"""Things that look on while a run is played. They never change what is trained; one can end it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from srpfl.runs.records import EvaluationRecord, RoundRecord

if TYPE_CHECKING:
    from srpfl.runs.run import Run


class Watcher:
    """Override what interests you.

    >>> class Enough(Watcher):
    ...     def after(self, run):
    ...         return bool(run.accuracy) and run.accuracy[-1].value > 0.9
    """

    def setting(self, config: Mapping[str, Any]) -> None:
        """All that the run depends on; told first."""

    def begin(self, name: str, rounds: int, done: int) -> None:
        """A run starts, or continues after ``done`` rounds."""

    def round(self, record: RoundRecord) -> None:
        """A round is over."""

    def evaluation(self, record: EvaluationRecord) -> None:
        """An evaluation is over."""

    def after(self, run: Run) -> bool | None:
        """After every round and its evaluation, with the run so far: its records, and its models
        by ``run.module_of(client)``. Return True to end the run here; it can be resumed."""

    def end(self) -> None:
        """The run is over, or was stopped."""


def in_a_notebook() -> bool:
    """Whether cells of a notebook are being run, and not lines of a shell."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def shown(wanted: bool | None) -> bool:
    """Whether to show progress: if it was asked for, or if nobody said and somebody looks."""
    return (in_a_notebook() or sys.stderr.isatty()) if wanted is None else wanted

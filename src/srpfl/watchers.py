"""Things that look on while a run is played, and never influence it."""

from __future__ import annotations

from srpfl.records import EvaluationRecord, RoundRecord


class Watcher:
    """Override what interests you."""

    def begin(self, name: str, rounds: int, done: int) -> None:
        """A run starts, or goes on after ``done`` rounds."""

    def round(self, record: RoundRecord) -> None:
        """A round is over."""

    def evaluation(self, record: EvaluationRecord) -> None:
        """An evaluation is over."""

    def end(self) -> None:
        """The run is over, or was stopped."""

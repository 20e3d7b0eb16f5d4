"""Things that look on while a run is played, and never influence it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from srpfl.records import EvaluationRecord, RoundRecord


class Watcher:
    """Override what interests you."""

    def setting(self, config: Mapping[str, Any]) -> None:
        """All that the run depends on; told first."""

    def begin(self, name: str, rounds: int, done: int) -> None:
        """A run starts, or goes on after ``done`` rounds."""

    def round(self, record: RoundRecord) -> None:
        """A round is over."""

    def evaluation(self, record: EvaluationRecord) -> None:
        """An evaluation is over."""

    def end(self) -> None:
        """The run is over, or was stopped."""

"""What trackers have in common: the numbers of a record by name, and that they never interfere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from srpfl.errors import ConfigError
from srpfl.records import EvaluationRecord, RoundRecord
from srpfl.run import Run
from srpfl.watchers import Watcher


class Tracker(Watcher):
    """Hands a run's numbers to a package that keeps them.

    A tracker overrides ``start``, ``log`` and ``finish``. When one of them fails (a full disk, a
    server that is gone) it says so once and tracks no more of this run.
    """

    package: str  # that must be there
    extra: str  # that brings it

    def __init__(self) -> None:
        if find_spec(self.package) is None:
            raise ConfigError(
                f"{type(self).__name__} needs {self.package}: pip install 'srpfl[{self.extra}]'"
            )
        self.config: Mapping[str, Any] = {}
        self.broken = False

    def start(self, name: str, done: int) -> None:
        raise NotImplementedError

    def log(self, metrics: Mapping[str, float], round: int) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        raise NotImplementedError

    def setting(self, config: Mapping[str, Any]) -> None:
        self.config, self.broken = config, False

    def begin(self, name: str, rounds: int, done: int) -> None:
        self._try(lambda: self.start(name, done))

    def round(self, record: RoundRecord) -> None:
        self._try(lambda: self.log(metrics_of(record, self._cost), record.round))

    def evaluation(self, record: EvaluationRecord) -> None:
        self._try(lambda: self.log(metrics_of(record, self._cost), record.round))

    def end(self) -> None:
        self._try(self.finish)

    @property
    def _cost(self) -> float:
        return float(self.config.get("communication", 0.0))

    def _try(self, step: Callable[[], None]) -> None:
        if self.broken:
            return
        try:
            step()
        except Exception as error:  # whatever a tracker's package does, the run comes first
            self.broken = True
            print(
                f"srpfl: {type(self).__name__} failed and tracks no more of this run "
                f"({type(error).__name__}: {error})",
                file=sys.stderr,
            )


def metrics_of(record: RoundRecord | EvaluationRecord, communication: float) -> dict[str, float]:
    """The numbers of a record, by the names that they have in every tracker."""
    if isinstance(record, EvaluationRecord):
        tested = [a for a, points in zip(record.clients, record.tested, strict=True) if points]
        return {
            f"accuracy/{record.kind}": record.accuracy,
            f"accuracy/{record.kind}/worst client": min(tested, default=0.0),
        }
    decided = {
        f"decision/{name}": float(value)
        for name, value in record.decision.items()
        if isinstance(value, (int, float))
    }
    return {
        "time": record.time(communication),
        "round/duration": record.duration,
        "round/stage": float(record.stage),
        "round/counted": float(len(record.participants)),
        "round/late": float(len(record.late)),
        "round/loss": record.loss,
        **decided,
    }


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """A config as dotted names and plain values."""
    if not isinstance(value, Mapping):
        return {name: value}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= flat(inner, f"{name}.{key}" if name else str(key))
    return found


def replay(run: Run, *watchers: Watcher) -> None:
    """Show a run that is over to watchers, as if it were played now."""
    for watcher in watchers:
        watcher.setting(run.config)
        watcher.begin(run.name, int(run.config["rounds"]), 0)
        for record in run.rounds:
            watcher.round(record)
            for evaluation in run.evaluations:
                if evaluation.round == record.round:
                    watcher.evaluation(evaluation)
        watcher.end()

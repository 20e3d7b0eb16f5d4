"""What trackers have in common: the numbers of a record by name, and that they never interfere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from srpfl.errors import ConfigError
from srpfl.loop.watchers import Watcher
from srpfl.runs.metric import Metric
from srpfl.runs.records import EvaluationRecord, RoundRecord
from srpfl.runs.results import Results


class Tracker(Watcher):
    """Hands a run's numbers to a package that keeps them.

    A tracker overrides ``start``, ``log`` and ``finish``, and ``spread`` if it can show how a
    number is spread over the clients. Every number comes with its round and with the time of the
    run's clock: on a simulated clock a round has a length, and that is what is compared. When a
    step fails (a full disk, a server that is gone) the tracker says so once and tracks no more of
    this run.
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

    def log(self, metrics: Mapping[str, float], round: int, time: float) -> None:
        raise NotImplementedError

    def spread(self, name: str, values: Sequence[float], round: int, time: float) -> None:
        """A number of each client."""

    def finish(self) -> None:
        raise NotImplementedError

    def setting(self, config: Mapping[str, Any]) -> None:
        self.config, self.broken = config, False

    def begin(self, name: str, rounds: int, done: int) -> None:
        self._try(lambda: self.start(name, done))

    def round(self, record: RoundRecord) -> None:
        self._log(record)

    def evaluation(self, record: EvaluationRecord) -> None:
        self._log(record)
        name, time = f"{record.metric}/{record.kind}/clients", record.time(self._cost)
        self._try(lambda: self.spread(name, tested_of(record), record.round, time))

    def end(self) -> None:
        self._try(self.finish)

    def _log(self, record: RoundRecord | EvaluationRecord) -> None:
        cost = self._cost
        self._try(lambda: self.log(metrics_of(record, cost), record.round, record.time(cost)))

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


def tested_of(record: EvaluationRecord) -> list[float]:
    """The values of the clients that have test samples."""
    return [v for v, weight in zip(record.clients, record.weights, strict=True) if weight]


def metrics_of(record: RoundRecord | EvaluationRecord, communication: float) -> dict[str, float]:
    """The numbers of a record, by the names that they have in every tracker."""
    if isinstance(record, EvaluationRecord):
        tested = tested_of(record)
        metric = Metric(record.metric, record.higher_is_better)
        name = f"{record.metric}/{record.kind}"
        # Where nobody was tested, the value stands for everyone.
        return {name: record.value, f"{name}/worst client": metric.worst(tested or [record.value])}
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


def hyperparameters(config: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """The choices of a run that tables of runs are sorted by: plain values by dotted name."""
    chosen = {name: config[name] for name in CHOSEN if name in config}
    kinds = (str, int, float, bool)
    return {name: value for name, value in flat(chosen).items() if isinstance(value, kinds)}


CHOSEN = (
    *("algorithm", "participation", "clock", "task", "data"),
    *("rounds", "seed", "communication", "precision"),
)


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """A config as dotted names and plain values."""
    if not isinstance(value, Mapping):
        return {name: value}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= flat(inner, f"{name}.{key}" if name else str(key))
    return found


def replay(run: Results, *watchers: Watcher) -> None:
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

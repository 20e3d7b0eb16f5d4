"""What a run has to say: accuracy over simulated time, for any cost of communication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srpfl.clock.exponential import check_communication
from srpfl.errors import ConfigError, RunFolderError, unknown
from srpfl.evaluation import KINDS
from srpfl.folder import Counts, RunFolder
from srpfl.population import PersonalParts
from srpfl.records import EvaluationRecord, RoundRecord
from srpfl.rounds import State
from srpfl.split import Params, combine

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Accuracy:
    """One evaluation."""

    round: int
    time: float
    mean: float
    clients: Sequence[float]


@dataclass(frozen=True)
class Run:
    """A finished or loaded run."""

    config: Mapping[str, Any]
    rounds: Sequence[RoundRecord]
    evaluations: Sequence[EvaluationRecord]
    state: State | None = None  # absent in a run that was loaded for its records only
    parts: PersonalParts | None = None
    counts: Counts | None = None  # training points by client and class, where they are known

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """The records of a run folder."""
        folder = RunFolder(Path(path))
        return cls(folder.config(), folder.rounds(), folder.evaluations(), counts=folder.counts())

    @property
    def name(self) -> str:
        return str(self.config["name"])

    @property
    def headline(self) -> str:
        """The kind of accuracy that this method is judged by."""
        return str(self.config["headline"])

    @property
    def communication(self) -> float:
        """The C that the run was played with."""
        return float(self.config["communication"])

    @property
    def real(self) -> bool:
        """Whether the clients were real ones, and so the times."""
        clock = self.config.get("clock")
        return isinstance(clock, Mapping) and clock.get("kind") == "RealTime"

    @property
    def accuracy(self) -> list[Accuracy]:
        """The headline accuracy at every evaluation, on the run's own clock."""
        return self.curve()

    def curve(self, kind: str | None = None, communication: float | None = None) -> list[Accuracy]:
        """One kind of accuracy at every evaluation, with time for any C."""
        cost = self._cost(communication)
        if kind is not None and kind not in KINDS:
            raise unknown("evaluation", kind, KINDS)
        wanted = kind or self.headline
        return [
            Accuracy(record.round, record.time(cost), record.accuracy, record.clients)
            for record in self.evaluations
            if record.kind == wanted
        ]

    def time(self, communication: float | None = None) -> float:
        """Simulated time of the whole run."""
        return self.rounds[-1].time(self._cost(communication)) if self.rounds else 0.0

    def time_to(
        self, target: float, communication: float | None = None, kind: str | None = None
    ) -> float | None:
        """Simulated time at the first evaluation at or above the target; None: not reached."""
        for point in self.curve(kind, communication):
            if point.mean >= target:
                return point.time
        return None

    def model_of(self, client: int) -> Params:
        """The weights of a client's own model: the shared part with its personal part."""
        if self.state is None or self.parts is None:
            raise RunFolderError("only the records of this run were loaded, not its weights")
        clients = self.config["data"]["clients"]
        if not 0 <= client < clients:
            raise ConfigError(f"there is no client {client}: they are numbered 0 to {clients - 1}")
        return combine(self.state.shared, self.parts.of(client))

    def plot(
        self,
        path: str | Path | None = None,
        communication: float | None = None,
        *,
        kind: str = "accuracy",
    ) -> Figure:
        """A picture of the run; written to a file (PNG, SVG, PDF) if one is named.

        ``kind`` is "accuracy" (against simulated time), "rounds" (who was waited for) or "clients"
        (accuracy and participation of each, from the fastest to the slowest).
        """
        from srpfl.report.plots import PLOTS

        if kind not in PLOTS:
            raise unknown("plot", kind, PLOTS)
        choices = {"communication": self._cost(communication)} if kind == "accuracy" else {}
        return PLOTS[kind]([self], path=path, **choices)

    def to_pandas(
        self, table: str = "evaluations", communication: float | None = None
    ) -> pandas.DataFrame:
        """Records as a data frame: "evaluations", "clients" (accuracies), "rounds" or "arrivals".

        Times are the run's own, or those at another C. Needs pandas.
        """
        from srpfl.export import to_pandas

        return to_pandas(self, table, self._cost(communication))

    def _cost(self, communication: float | None) -> float:
        if communication is None:
            return self.communication
        check_communication(communication)
        if self.config.get("sees_communication") and communication != self.communication:
            raise ConfigError(
                "this run's participation policy looks at the cost of communication "
                f"(C = {self.communication:g} when it was played), so another C needs another run"
            )
        return communication

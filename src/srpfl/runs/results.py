"""What a run leaves behind, and what can be read from it for any cost of communication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from srpfl.clock.exponential import check_communication
from srpfl.core.devices import moved
from srpfl.core.initial import initial_model
from srpfl.core.split import Params, combine
from srpfl.errors import ConfigError, RunFolderError, printable, unknown
from srpfl.runs.folder import Counts, RunFolder
from srpfl.runs.metric import Metric
from srpfl.runs.records import KINDS, EvaluationRecord, RoundRecord
from srpfl.runs.state import ClientParts, State
from srpfl.runs.trained import (
    TrainedModel,
    Weights,
    filled,
    read_weights,
    transform_of,
    untrained,
)

if TYPE_CHECKING:
    from torch import nn

    from srpfl.algorithms.base import Algorithm


LONGEST = 200  # characters of a name


@dataclass(frozen=True)
class Point:
    """One evaluation."""

    round: int
    time: float
    value: float  # of the metric, over all clients
    clients: Sequence[float] = field(repr=False)  # its value for each client
    error: float = 0.0  # standard error, where a sample of the clients was tested

    @property
    def mean(self) -> float:
        """The value, by the name that it has for accuracies."""
        return self.value


@dataclass(frozen=True)
class Made:
    """What a run was made of, where it was played just now."""

    model: nn.Module  # as the run began with it
    algorithm: Algorithm
    transform: Any  # of the data


@dataclass(frozen=True, repr=False)
class Results:
    """A run's config and records; where it was played just now, its weights too.

    Comparisons, exports, plots and reports are made from this. ``Run`` has them as methods.
    """

    config: Mapping[str, Any]
    rounds: Sequence[RoundRecord]
    evaluations: Sequence[EvaluationRecord]
    state: State | None = None  # absent in a run that was loaded for its records only
    parts: ClientParts | None = None
    counts: Counts | None = None  # training points by client and class, where they are known
    made: Made | None = field(default=None, compare=False)
    folder: Path | None = field(default=None, compare=False)  # where the run is kept

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The records of a run folder."""
        return cls.read(RunFolder(Path(path)))

    @classmethod
    def read(cls, folder: RunFolder) -> Self:
        """What can be trusted of a folder's records; damage is said."""
        config, (rounds, evaluations) = folder.config(), folder.records()
        return cls(config, rounds, evaluations, counts=folder.counts(), folder=folder.path)

    def __repr__(self) -> str:
        data, curve = self.config.get("data") or {}, self.curve()
        # The name may be the algorithm's alone, and that of SRPFL is FedRep.
        policy = str((self.config.get("participation") or {}).get("kind") or "Everyone")
        who = self.name if policy == "Everyone" else f"{self.name} with {policy}"
        played = f"{len(self.rounds)} round{'' if len(self.rounds) == 1 else 's'}"
        last = curve[-1] if curve else None
        value = "not evaluated"
        if last is not None:
            shown = self.judged_by.shown(last.value)
            value = f"{self.headline} {self.judged_by.title} {shown} at time {last.time:.1f}"
        return (
            f"<{type(self).__name__} {who} on {data.get('name', 'data')}, "
            f"{data.get('clients', '?')} clients, seed {self.config.get('seed')}: "
            f"{played}, {value}>"
        )

    @property
    def name(self) -> str:
        """What the run is called; a text of a stranger's is cut, for pictures are drawn with it."""
        name = printable(str(self.config["name"]))
        return name if len(name) <= LONGEST else f"{name[:LONGEST]}..."

    @property
    def headline(self) -> str:
        """The kind of evaluation that this method is judged by."""
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
    def judged_by(self) -> Metric:
        """The metric of the run's task, and which way is better."""
        task = self.config.get("task")
        if isinstance(task, Mapping) and "metric" in task:
            return Metric(printable(str(task["metric"])), bool(task.get("higher_is_better", True)))
        last = self.evaluations[-1:]  # a config of the first version does not say
        return Metric(last[0].metric, last[0].higher_is_better) if last else Metric()

    @property
    def metric(self) -> str:
        """What the run is judged by, such as "accuracy"."""
        return self.judged_by.name

    @property
    def higher_is_better(self) -> bool:
        return self.judged_by.higher_is_better

    @property
    def scores(self) -> list[Point]:
        """The headline metric at every evaluation, on the run's own clock."""
        there = {record.kind for record in self.evaluations}
        if there and self.headline not in there:
            raise ConfigError(
                f"this run is judged by its {self.headline} {self.metric}, and was only evaluated "
                f"as {', '.join(sorted(there))}: ask for run.curve('{min(there)}')"
            )
        return self.curve()

    @property
    def accuracy(self) -> list[Point]:
        """The headline metric at every evaluation, by the name that classifiers know."""
        return self.scores

    def curve(self, kind: str | None = None, communication: float | None = None) -> list[Point]:
        """The metric at every evaluation of one kind, with time for any C."""
        cost = self.cost(communication)
        if kind is not None and kind not in KINDS:
            raise unknown("evaluation", kind, KINDS)
        wanted = kind or self.headline
        return [
            Point(record.round, record.time(cost), record.value, record.clients, record.error)
            for record in self.evaluations
            if record.kind == wanted
        ]

    def time(self, communication: float | None = None) -> float:
        """Simulated time of the whole run."""
        return self.rounds[-1].time(self.cost(communication)) if self.rounds else 0.0

    def time_to(
        self, target: float, communication: float | None = None, kind: str | None = None
    ) -> float | None:
        """Simulated time at the first evaluation at the target or better; None: not reached."""
        metric = self.judged_by
        for point in self.curve(kind, communication):
            if metric.reaches(point.value, target):
                return point.time
        return None

    def reaches(self, value: float, target: float) -> bool:
        """Whether a value of the metric is at the target or better."""
        return self.judged_by.reaches(value, target)

    def model_of(self, client: int) -> Params:
        """The weights of a client's own model, by name: the shared part with its personal part.

        From memory, or from the run's folder, which has the shared part alone of a client that
        never took part. :meth:`module_of` has them in a network.
        """
        self._check_client(client)
        if self.state is not None and self.parts is not None:
            if self.parts.of(client) and not self.parts.took_part(client):
                untrained(client)
            return combine(self.state.shared, self.parts.of(client))
        found = self._read(client)
        if not found.took_part and self._algorithm(found).personalises:
            untrained(client)
        return combine(found.shared, found.personal)

    def module_of(
        self,
        client: int,
        *,
        model: nn.Module | None = None,
        transform: Any = None,
        algorithm: Algorithm | None = None,
    ) -> TrainedModel:
        """A client's own model, ready to use: a ``torch.nn.Module`` that takes samples as the data
        had them. Its own model is what "local" accuracy is measured with.

        A run that was loaded from a folder does not hold the network's code: give it as ``model``
        (any instance of it; the weights come from the folder). An algorithm of your own that keeps
        slots with its clients is needed too.

        >>> import srpfl
        >>> data = srpfl.data.load("digits", clients=5)
        >>> run = srpfl.simulate(
        ...     data=data, model=srpfl.models.MLP(64, (8,), classes=10),
        ...     algorithm=srpfl.FedRep(head_epochs=1), rounds=1,
        ... )
        >>> run.module_of(3)(data.test(3).x).argmax(1).shape == data.test(3).y.shape
        True
        """
        self._check_client(client)
        if self.made is not None and self.state is not None and self.parts is not None:
            base, given = self.made.model, self.made.transform
            kept = self.parts
            slots = {n: moved(part, self.state.shared) for n, part in kept.slots_of(client).items()}
            found = Weights(
                *(self.state.shared, self.state.server, moved(kept.of(client), self.state.shared)),
                *(slots, kept.took_part(client)),
            )
            algorithm = self.made.algorithm
        else:
            if model is None:
                raise ConfigError(
                    "a run folder holds weights and not the network's code: give the network, "
                    f"module_of({client}, model=...)"
                )
            base = initial_model(
                model, self.config["seed"], pretrained=bool(self.config.get("pretrained"))
            )
            given = transform if transform is not None else transform_of(self.config)
            found = self._read(client)
            algorithm = algorithm or self._algorithm(found)
        own = found.personal
        if found.took_part or found.slots:
            sent = algorithm.sends(found.server)
            own = algorithm.own(found.shared, own, {**sent, **found.slots})
        if not found.took_part and algorithm.personalises:
            untrained(client)
        return TrainedModel(filled(base, {**found.shared, **own}), given)

    def _read(self, client: int) -> Weights:
        if self.folder is None:
            raise RunFolderError("only the records of this run were loaded, not its weights")
        return read_weights(self.folder, client, sealed=RunFolder(self.folder).sealed)

    def _algorithm(self, found: Weights) -> Algorithm:
        """One of ours by the name in the config; what is a client's own does not depend on more."""
        from srpfl import algorithms

        told = self.config.get("algorithm")
        kind = str(told.get("kind")) if isinstance(told, Mapping) else ""
        ours = getattr(algorithms, kind, None)
        if ours is None and found.slots:
            raise ConfigError(
                f"{kind} is an algorithm of your own, and its clients keep more than weights: give "
                "it as algorithm=..."
            )
        made: Algorithm = (ours or algorithms.FedRep)()
        return made

    def _check_client(self, client: int) -> None:
        clients = self.config["data"]["clients"]
        if not 0 <= client < clients:
            raise ConfigError(f"there is no client {client}: they are numbered 0 to {clients - 1}")

    def cost(self, communication: float | None) -> float:
        """The C to count time with: the run's own, or another where that makes sense."""
        if communication is None:
            return self.communication
        check_communication(communication)
        if self.config.get("sees_communication") and communication != self.communication:
            raise ConfigError(
                "this run's participation policy looks at the cost of communication "
                f"(C = {self.communication:g} when it was played), so another C needs another run"
            )
        return communication

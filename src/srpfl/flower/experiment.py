"""What a deployment is asked to do: the simulator's choices, and how patient the server is."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from flwr.app import Context
from torch import nn

from srpfl.algorithms.base import Algorithm, Evaluation
from srpfl.errors import ConfigError, unknown
from srpfl.flower.judging import JUDGES, Judge
from srpfl.loop.evaluation import check_kinds, default_kinds
from srpfl.loop.running import check_target, evaluated_rounds
from srpfl.participation.base import Participation
from srpfl.participation.everyone import Everyone
from srpfl.task import Classification, Task


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a server waits, in seconds, and what it does then."""

    clients: float = 120.0  # for enough idle clients to begin a round
    few: Literal["go on", "fail"] = "go on"  # when there are still too few
    round: float = 3600.0  # for the answers of a round
    budget: float | None = None  # after which a client gives up; as long as the round by default
    evaluation: float = 600.0
    masks: float = 60.0  # for more than are needed, in an exchange of keys and shares for masks
    settling: float = 60.0  # at the end, for the last participants to hear that they counted
    tries: int = 3  # of a round that nobody answers
    poll: float = 0.5  # between two looks for answers: each costs the SuperLink some work

    def __post_init__(self) -> None:
        if self.few not in ("go on", "fail"):
            raise ConfigError(f"with too few clients a run can 'go on' or 'fail', not '{self.few}'")
        for name in ("clients", "round", "evaluation", "masks", "settling", "poll", "tries"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"patience for '{name}' must be a positive number, not {value}")
        if self.budget is not None and not (math.isfinite(self.budget) and self.budget > 0):
            raise ConfigError(f"the budget must be a positive number of seconds, not {self.budget}")

    @property
    def work(self) -> float:
        """The time after which a round's answer is useless."""
        return self.round if self.budget is None else self.budget


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment on real clients; both sides of the deployment build it alike.

    ``name`` is the method's name in reports and the key under which clients keep their personal
    parts. ``clients`` is M, the most clients that there can be. ``out`` is the server's folder: a
    run that is found there is continued.
    """

    name: str
    model: nn.Module | Callable[[], nn.Module]
    algorithm: Algorithm
    clients: int
    out: str | Path
    participation: Participation = field(default_factory=Everyone)
    task: Task = field(default_factory=Classification)
    rounds: int = 60
    seed: int = 0
    evaluate_every: int | None = None  # in rounds; about ten evaluations by default, 0 for none
    evaluate_at: Sequence[int] | None = None  # rounds, instead
    evaluations: Sequence[Evaluation] | None = None
    stop_at: float | None = None
    pretrained: bool = False
    patience: Patience = field(default_factory=Patience)
    users: int = 1  # the most clients that one node may be
    absurd: float = 10.0  # an answer whose norm is so many times the round's median is refused
    outweigh: float = 100.0  # nobody weighs more than so many times the median client
    judge: Judge = "weighted"  # what a metric is over clients: see srpfl.flower.judging
    inherit: bool = False  # go on with the personal parts of another run of that name
    authenticated: bool | None = None  # nodes have keys; None: as SRPFL_AUTHENTICATED=1 says
    options: dict[str, Any] | None = None  # kept in the run folder

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("an experiment needs a name: clients keep their parts under it")
        if self.clients < 1 or self.rounds < 1 or self.users < 1:
            raise ConfigError("a deployment needs at least one client, a user and one round")
        if self.participation.needs_fixed_speeds:
            raise ConfigError(
                f"{type(self.participation).__name__} needs the same clients to be the fastest in "
                "every round, and real ones promise no such thing: use a fixed schedule"
            )
        for name in ("absurd", "outweigh"):
            if not getattr(self, name) >= 1:
                raise ConfigError(f"'{name}' must be a number of at least 1")
        if self.judge not in JUDGES:
            raise unknown("way to judge", self.judge, JUDGES)
        check_kinds(self.kinds, self.algorithm)
        check_target(self.stop_at, self.task)

    @property
    def has_keys(self) -> bool:
        """Whether a node id stands for a key, so that names can be bound to it."""
        said = self.authenticated
        return os.environ.get("SRPFL_AUTHENTICATED") == "1" if said is None else said

    @property
    def kinds(self) -> tuple[Evaluation, ...]:
        chosen = self.evaluations
        return default_kinds(self.algorithm) if chosen is None else tuple(chosen)

    @property
    def evaluated(self) -> frozenset[int]:
        """The rounds after which clients are tested."""
        usual = max(1, self.rounds // 10) if self.evaluate_every is None else self.evaluate_every
        return evaluated_rounds(self.rounds, usual, self.evaluate_at)


Build = Experiment | Callable[[Context], Experiment]


def built(experiment: Build, context: Context) -> Experiment:
    """The experiment, or the one that a function makes of Flower's run config."""
    return experiment if isinstance(experiment, Experiment) else experiment(context)

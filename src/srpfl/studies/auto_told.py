"""Auto as it would decide if it were told the truth, or a part of it: which unknown costs most?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from srpfl.errors import ConfigError, unknown
from srpfl.linear import orthonormal
from srpfl.linear.problem import Array
from srpfl.participation import Auto
from srpfl.participation._arrivals import Arrivals
from srpfl.participation._signal import Signal, Vector
from srpfl.participation.base import Memory, Outcome
from srpfl.studies.auto_settings import Setting, SettingProblem

KNOWN = ("distance", "pull", "waits")
PARAMETERS = ("margin", "patience", "memory", "step")
SEEN = 20  # rounds whose waits are averaged


@dataclass(frozen=True, kw_only=True)
class Told(Auto):
    """Auto with the true distance to B*, the true pull (η) or the true mean waits in the place of
    its estimates. All three make the oracle: it has the noise from the answers, as Auto has, and
    does not know whose heads hold which direction."""

    problem: SettingProblem = field(default_factory=lambda: Setting().problem(0))
    eta: float | None = None
    waits: Sequence[float] | None = None
    sees_distance: bool = False
    squared_distance: float | None = None  # after the round that is learnt from

    def learn(self, memory: Memory, outcome: Outcome) -> Memory:
        if not self.sees_distance:
            return super().learn(memory, outcome)
        mean = np.mean([answer.shared["B"].numpy() for answer in outcome.answers], axis=0)
        told = replace(self, squared_distance=_squared_distance(self.problem, mean))
        return Auto.learn(told, memory, outcome)

    def decide(
        self,
        signal: Signal,
        arrivals: Arrivals,
        position: Vector,
        ranks: Sequence[int],
        communication: float,
        spent: float,
    ) -> tuple[int, dict[str, Any]]:
        better = TrueSignal(
            **asdict(signal), true_pull=self.eta, squared_distance=self.squared_distance
        )
        if self.waits is not None:
            arrivals = TrueWaits(**vars(arrivals), true=self.waits)
        return super().decide(better, arrivals, position, ranks, communication, spent)


@dataclass(frozen=True)
class TrueSignal(Signal):
    true_pull: float | None = None
    squared_distance: float | None = None

    @property
    def pull(self) -> float:
        return super().pull if self.true_pull is None else self.true_pull

    def squared(self, position: Vector) -> float:
        if self.squared_distance is None:
            return super().squared(position)
        return self.pull**2 * self.squared_distance


@dataclass(frozen=True)
class TrueWaits(Arrivals):
    true: Sequence[float] = ()

    def wait_for(self, n: int) -> float:
        return self.true[n - 1]


def check(items: Sequence[str]) -> None:
    """Refuse what is neither a truth nor a parameter of Auto with its value."""
    for item in items:
        name, given, value = item.partition("=")
        if given and name in PARAMETERS:
            try:
                Auto(**{name: float(value)})  # type: ignore[arg-type]
            except ValueError as error:
                raise ConfigError(f"{name} must be a number, not '{value}'") from error
        elif given or name not in KNOWN:
            raise unknown("truth or parameter", name, [*KNOWN, *PARAMETERS])


def told(setting: Setting, problem: SettingProblem, items: Sequence[str]) -> Auto:
    """Auto that is told some of "distance", "pull" and "waits", or has other parameters, such as
    "margin=0.1"; plain Auto for nothing."""
    check(items)
    known = [item for item in items if "=" not in item]
    pairs = [item.split("=") for item in items if "=" in item]
    given: dict[str, Any] = {name: float(value) for name, value in pairs}
    if not known:
        return Auto(start=setting.start, **given)
    rounds = [np.sort(setting.times(problem.seed, round)) for round in range(SEEN)]
    return Told(
        start=setting.start,
        problem=problem,
        eta=setting.eta if "pull" in known else None,
        waits=np.mean(rounds, axis=0).tolist() if "waits" in known else None,
        sees_distance="distance" in known,
        **given,
    )


def _squared_distance(problem: SettingProblem, b: Array) -> float:
    """‖(I − B*B*ᵀ) Q‖² in the Frobenius norm, which is what a mean of answers lowers."""
    q, truth = orthonormal(b), problem.representation
    return float(((q - truth @ (truth.T @ q)) ** 2).sum())

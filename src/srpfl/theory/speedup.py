"""Theorem 2: the stages that the analysis asks for, and what they save.

A run starts at distance 1 with n0 participants, continues with n⁺ = min(N, 2n) once the distance is
at or below the doubling point X(n→n⁺), and ends at ε. Times are expected ones, for clients whose
times are independent exponentials with rate λ in every round, and for communication C = c/λ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from srpfl.errors import ConfigError
from srpfl.theory.contraction import (
    check_contraction,
    distance_after,
    limit,
    rounds_to,
    target_accuracy,
)
from srpfl.theory.order import expected_wait

if TYPE_CHECKING:
    from srpfl.participation import Doubling


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """What the analysis has to know: N, n0, a, c, ĉ and λ.

    >>> Assumptions(clients=128, start=4, a=0.25, c=0.0, c_hat=1.4).stages
    (4, 8, 16, 32, 64, 128)
    """

    clients: int
    start: int
    a: float
    c: float = 0.0
    c_hat: float = 1.4
    rate: float = 1.0

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise ConfigError(f"clients must be at least 1, not {self.clients}")
        check_contraction(self.start, self.a)
        if self.start > self.clients:
            raise ConfigError(f"start must be at most clients = {self.clients}, not {self.start}")
        if not (self.c >= 0 and math.isfinite(self.c)):
            raise ConfigError(f"c must be zero or a positive number, not {self.c}")
        if not (self.rate > 0 and math.isfinite(self.rate)):
            raise ConfigError(f"rate must be a positive number, not {self.rate}")
        if self.epsilon >= 1:
            # ε falls as 1/√N, so this N is where it passes below the start.
            enough = math.floor(self.clients * self.epsilon**2) + 1
            raise ConfigError(
                f"the target ε = {self.epsilon:.3f} is no closer than the start, at distance 1: "
                f"raise clients to {enough} or more, or lower start or c_hat"
            )

    @property
    def epsilon(self) -> float:
        """The distance at which a run ends."""
        return target_accuracy(self.clients, start=self.start, a=self.a, c_hat=self.c_hat)

    @property
    def stages(self) -> tuple[int, ...]:
        """The participants of each stage: n0, 2n0, ..., N."""
        return doubled(self.start, self.clients)

    def round_time(self, n: int) -> float:
        """E[T_(n)] + C, what a round with n participants takes."""
        return expected_wait(n, self.clients, rate=self.rate) + self.c / self.rate


@dataclass(frozen=True)
class Stage:
    """One stage: its participants, its rounds, the distance it ends at, the time it takes."""

    n: int
    rounds: int
    distance: float
    time: float


@dataclass(frozen=True)
class Cost:
    """The expected wall clock of a method, and its rounds."""

    time: float
    rounds: int


@dataclass(frozen=True)
class Gain:
    """SRPFL and FedRep on the way from distance 1 to ε."""

    epsilon: float
    stages: tuple[Stage, ...]
    srpfl: Cost
    fedrep: Cost
    bound: float

    @property
    def speedup(self) -> float:
        """FedRep's expected time over SRPFL's."""
        return self.fedrep.time / self.srpfl.time


def doubled(start: int, clients: int) -> tuple[int, ...]:
    """n0, then n⁺ = min(N, 2n) until N; N/n0 need not be a power of two.

    >>> doubled(3, 20)
    (3, 6, 12, 20)
    """
    stages = [start]
    while stages[-1] < clients:
        stages.append(min(clients, 2 * stages[-1]))
    return tuple(stages)


def doubling_point(setting: Assumptions, n: int, following: int) -> float:
    """X(n→n⁺): the distance at which n⁺ participants gain more per unit of time than n.

    Above it, n is the better choice. For n⁺ = 2n this is X_{r+1} as the lemma's proof has it.

    >>> setting = Assumptions(clients=128, start=4, a=0.25)
    >>> round(doubling_point(setting, 64, 128), 4)
    0.5616
    """
    now, then = (expected_wait(k, setting.clients, rate=setting.rate) for k in (n, following))
    gain = setting.round_time(n) * (1 - math.sqrt(n / following)) / (then - now)
    return limit(n, start=setting.start, a=setting.a) * (1 + gain)


def compare(setting: Assumptions) -> Gain:
    """Rounds, distances and expected times of SRPFL, stage by stage, and of FedRep.

    Rounds are counted on the contraction itself. The first stages may get none: the limits at n0,
    2n0 and 4n0 are above 1, so that a run that starts at distance 1 has nothing to gain there.

    >>> answer = compare(Assumptions(clients=128, start=4, a=0.25, c=0.0, c_hat=1.4))
    >>> [(stage.n, stage.rounds) for stage in answer.stages]
    [(4, 0), (8, 0), (16, 0), (32, 3), (64, 20), (128, 2)]
    >>> answer.fedrep.rounds, round(answer.speedup, 2)
    (10, 2.13)
    """
    epsilon = setting.epsilon
    distance = 1.0
    stages = []
    for n, following in zip(setting.stages, (*setting.stages[1:], None), strict=True):
        # N below 2n may let n participants alone reach ε, hence the larger of the two.
        level = max(epsilon, doubling_point(setting, n, following)) if following else epsilon
        rounds = rounds_to(level, n, start=setting.start, a=setting.a, distance=distance)
        distance = distance_after(rounds, n, start=setting.start, a=setting.a, distance=distance)
        stages.append(Stage(n, rounds, distance, rounds * setting.round_time(n)))
    alone = rounds_to(epsilon, setting.clients, start=setting.start, a=setting.a)
    return Gain(
        epsilon=epsilon,
        stages=tuple(stages),
        srpfl=Cost(math.fsum(stage.time for stage in stages), sum(s.rounds for s in stages)),
        fedrep=Cost(alone * setting.round_time(setting.clients), alone),
        bound=time_ratio_bound(setting.clients, c=setting.c, c_hat=setting.c_hat),
    )


def optimal_schedule(setting: Assumptions) -> Doubling:
    """The stages of the analysis, as a participation policy that a run can use directly.

    It asks N clients a round. Stages without rounds are left out, and the last stage, all N, goes
    on for as long as the run does.

    >>> optimal_schedule(Assumptions(clients=128, start=4, a=0.25)).schedule
    ((32, 3), (64, 20), (128, 2))
    """
    from srpfl.participation import Doubling

    *early, last = compare(setting).stages
    schedule = [(stage.n, stage.rounds) for stage in (*(s for s in early if s.rounds), last)]
    return Doubling(sample=setting.clients, schedule=tuple(schedule))


def lemma_rounds(setting: Assumptions) -> tuple[float | None, ...]:
    """The closed form of the lemma for the rounds of each stage, beside `compare`'s exact count.

    It is the real number of rounds from one doubling point to the next,
    2·log(√2·(T_{2n} − T_n)/(T_n − T_{n/2})) / log(1/(1−a)), here for any n⁺. A run that enters a
    stage below its doubling point, as whole rounds do, needs no more than that, rounded up.
    The first stage has no doubling point to start from (None). The last stage is the proof of
    Theorem 2's 2·log(1/(ĉ−1)) / log(1/(1−a)), which holds once log₂ N ≥ (c+1)/√2.

    >>> [t and round(t, 1) for t in lemma_rounds(Assumptions(clients=128, start=4, a=0.25))]
    [None, 7.6, 8.0, 9.1, 19.6, 6.4]
    """
    n = setting.stages
    wait = [expected_wait(k, setting.clients) for k in n]
    per_log = -2 / math.log1p(-setting.a)
    between = [
        per_log
        * math.log(
            (math.sqrt(n[r] / n[r - 1]) - 1)
            / (1 - math.sqrt(n[r] / n[r + 1]))
            * (wait[r + 1] - wait[r])
            / (wait[r] - wait[r - 1])
        )
        for r in range(1, len(n) - 1)
    ]
    return (None, *between, -per_log * math.log(setting.c_hat - 1))


def time_ratio_bound(clients: int, *, c: float, c_hat: float) -> float:
    """Theorem 2's bound on the time of SRPFL over the time of FedRep.

    (6(c+1) + 4·log₂(1/(ĉ−1))) / (log₂ N + 2·log₂(1/(ĉ−1))). It is asymptotic: its lower bound for
    FedRep does not hold at every finite N, and with c = 10 it stays above 1, and so says nothing,
    up to N = 2^68. It shows how the ratio falls with N, not how large it is.

    >>> round(time_ratio_bound(2**20, c=0.0, c_hat=1.4), 3)
    0.498
    """
    closeness = -math.log2(c_hat - 1)
    return (6 * (c + 1) + 4 * closeness) / (math.log2(clients) + 2 * closeness)

"""Late answers are kept: asynchronous and semi-asynchronous policies.

So many clients are at work at any time (``concurrency``); an answer counts in the round in which it
comes, by its age: how many times the server has updated the shared part since it was sent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from srpfl.errors import ConfigError, number, whole
from srpfl.participation.base import Call, Credit, Memory, Outcome, Sampling

Staleness = Literal["constant", "hinge", "polynomial"]


@dataclass(frozen=True, kw_only=True)
class KeepsLate(Sampling):
    """What these policies have in common. ``sample`` says how many clients are at work at any time,
    as a fraction or a number.

    ``staleness`` is s(age) of Xie et al. (2019): 1 ("constant"), 1 up to age b and 1 / (a·(age − b)
    + 1) beyond ("hinge"; the paper has a = 10, b = 4), or (age + 1)^−a ("polynomial").
    """

    staleness: Staleness = "polynomial"
    a: float = 0.5
    b: float = 4.0

    sees_communication: ClassVar[bool] = True  # it is part of the time that a client takes

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.staleness not in ("constant", "hinge", "polynomial"):
            raise ConfigError(
                f"staleness is 'constant', 'hinge' or 'polynomial', not '{self.staleness}'"
            )
        if not (0 <= number("a", self.a) < math.inf and 0 <= number("b", self.b) < math.inf):
            raise ConfigError(f"the staleness has a and b of zero or more, not {self.a}, {self.b}")

    def stale(self, age: int) -> float:
        """s(age).

        >>> FedBuff().stale(3)
        0.5
        >>> [FedAsync(staleness="hinge", a=10, b=4).stale(age) for age in (4, 5)]
        [1.0, 0.09090909090909091]
        """
        if self.staleness == "constant":
            return 1.0
        if self.staleness == "hinge":
            return float(1.0 if age <= self.b else 1.0 / (self.a * (age - self.b) + 1.0))
        return float((age + 1.0) ** -self.a)


@dataclass(frozen=True, kw_only=True)
class FedBuff(KeepsLate):
    """Update with every K answers: x ← x + η/K · Σ s(age_i)·Δ_i, with Δ_i what client i has changed
    (Nguyen et al., "Federated learning with buffered asynchronous aggregation", AISTATS 2022).

    ``k`` is a tenth of those at work unless it is given, ``lr`` is η. With an algorithm that has an
    update of its own, such as FedAdam, that gets s(age_i)·Δ_i. Answers older than ``max_age`` are
    dropped.

    >>> FedBuff(sample=50, k=10).call({}, round=7, population=100).wait
    10
    """

    k: int | None = None
    lr: float = 1.0
    max_age: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k is not None and whole("k", self.k) < 1:
            raise ConfigError(f"the buffer holds at least one answer, not {self.k}")
        if not 0 < number("lr", self.lr) < math.inf:
            raise ConfigError(f"lr must be a positive number, not {self.lr}")
        check_age(self.max_age)

    def begin(self, population: int) -> Memory:
        if self.wait(population) > self.asked(population):
            raise ConfigError(
                f"a buffer of {self.k} answers is never full with {self.asked(population)} clients "
                "at work: lower k, or raise the sample"
            )
        return super().begin(population)

    def wait(self, population: int) -> int:
        return max(1, self.asked(population) // 10) if self.k is None else self.k

    def call(self, memory: Memory, round: int, population: int) -> Call:
        return Call(
            ask=self.asked(population),
            wait=self.wait(population),
            draw=round,
            late="keep",
            max_age=self.max_age,
            too_old="drop",
        )

    def credit(self, age: int) -> Credit:
        """How an answer of this age counts."""
        return Credit(self.lr * self.stale(age))


@dataclass(frozen=True, kw_only=True)
class FedAsync(KeepsLate):
    """Mix every answer in as it comes: x ← (1 − α_t)·x + α_t·y with α_t = α·s(age) (Xie et al.,
    "Asynchronous federated optimization", 2019).

    >>> FedAsync(mixing=0.6).credit(3)
    Credit(weight=0.3, of='model')
    """

    mixing: float = 0.6  # α

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < number("mixing", self.mixing) <= 1:
            raise ConfigError(f"mixing is a share above 0 and at most 1, not {self.mixing}")

    def call(self, memory: Memory, round: int, population: int) -> Call:
        return Call(ask=self.asked(population), wait=1, draw=round, late="keep")

    def credit(self, age: int) -> Credit:
        """How an answer of this age counts."""
        return Credit(self.mixing * self.stale(age), "model")


@dataclass(frozen=True, kw_only=True)
class SemiAsync(FedBuff):
    """FedBuff with a bound: no answer that counts is older than ``max_age`` rounds, because a round
    waits for those who would be. With ``max_age=0`` every round waits for all who are at work."""

    max_age: int | None = 5

    def call(self, memory: Memory, round: int, population: int) -> Call:
        return Call(
            ask=self.asked(population),
            wait=self.wait(population),
            draw=round,
            late="keep",
            max_age=self.max_age,
        )


@dataclass(frozen=True, kw_only=True)
class Compass(KeepsLate):
    """Local work by speed, so that answers come together: after FedCompass (Li et al., ICLR 2024).

    The fastest client does all of its local work. Others do as much as they can do in that time, or
    in twice, three times as long where that would be less than ``least`` of it; so answers come in
    groups, and the server updates when a group is due. Times are known from a client's last answer;
    before it has given one, it does ``least``. Work is dealt out in tenths. What an exchange costs,
    C, is there however little work is done, and is no part of it.

    >>> policy = Compass()
    >>> times = {"0": 1.0, "1": 2.5, "2": 40.0}  # of all the work
    >>> policy.effort({"times": times, "cost": 0.0}, [0, 1, 2, 3])
    [1.0, 0.4, 0.2, 0.2]
    >>> policy.effort({"times": times, "cost": 9.0}, [0, 1, 2, 3])
    [1.0, 0.6, 0.3, 0.2]
    """

    least: float = 0.2
    slack: float = 0.05  # by such a part of its time a group may be late

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < number("least", self.least) <= 1:
            raise ConfigError(f"least is a share above 0 and at most 1, not {self.least}")
        if number("slack", self.slack) < 0:
            raise ConfigError(f"the slack must be zero or more, not {self.slack}")

    def begin(self, population: int) -> Memory:
        return {**super().begin(population), "times": {}, "cost": 0.0}

    def call(self, memory: Memory, round: int, population: int) -> Call:
        asked, deadline = self.asked(population), self._span(memory) or None
        wait = asked if deadline else 1
        return Call(ask=asked, wait=wait, draw=round, deadline=deadline, late="keep")

    def effort(self, memory: Memory, clients: Sequence[int]) -> list[float]:
        """Which part of its local work each of the clients is to do."""
        times, cost, span = memory["times"], memory.get("cost", 0.0), self._span(memory)
        return [self._part(times.get(str(client)), cost, span) for client in clients]

    def _span(self, memory: Memory) -> float:
        """From group to group: what the fastest client takes for all of its work, and the slack."""
        known = memory["times"].values()
        return (1 + self.slack) * float(min(known) + memory.get("cost", 0.0)) if known else 0.0

    def _part(self, time: float | None, cost: float, span: float) -> float:
        if time is None or not span:
            return self.least
        group = max(1, math.ceil((cost + self.least * time) / span - 1e-9))
        part = (group * span - cost) / time if time > 0 else 1.0
        return max(self.least, math.floor(10 * min(1.0, part) + 1e-9) / 10)

    def learn(self, memory: Memory, outcome: Outcome) -> Memory:
        cost = outcome.communication
        seen = {
            str(answer.client): max(0.0, answer.time - cost) / answer.part
            for answer in outcome.answers
        }
        return {**memory, "times": {**memory["times"], **seen}, "cost": cost}

    def credit(self, age: int) -> Credit:
        """How an answer of this age counts."""
        return Credit(self.stale(age))


def check_age(age: int | None) -> None:
    """Refuse a bound on ages that no answer could keep."""
    if age is not None and whole("max_age", age) < 0:
        raise ConfigError(f"max_age must be zero or more, not {age}")

"""Whose answers a round waits for, decided from what a server sees and from nothing else.

A policy is asked before each round whom to call (:meth:`Participation.call`) and is told
afterwards what came of it (:meth:`Participation.learn`). What it wants to remember is a JSON value
that the run's state keeps, so that a resumed run decides as an uninterrupted one would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from srpfl.errors import ConfigError, number, whole

if TYPE_CHECKING:
    from srpfl.rounds import Answer
    from srpfl.split import Params

Memory = Mapping[str, Any]  # JSON values only


@dataclass(frozen=True)
class Call:
    """What a policy wants of the next round."""

    ask: int  # N: how many clients get the model
    wait: int  # n: the round goes on with the first n answers
    stage: int = 0
    draw: int = 0  # which random sample of clients: the same number, the same clients
    deadline: float | None = None  # the round goes on then with what it has, but never with nothing
    grace: float = 0.0  # by such a part of its length the round is made longer to hear more than n

    def end(self, nth: float, communication: float) -> float:
        """When the round goes on whose n-th answer came at this time."""
        return nth + self.grace * (nth + communication)


@dataclass(frozen=True)
class Outcome:
    """What a server knows after a round."""

    round: int
    call: Call
    asked: Sequence[int]
    answers: Sequence[Answer]  # those that counted, in order of arrival
    duration: float  # from sending to going on, without communication
    communication: float  # the part of the round that is not the clients' computing
    sent: Params  # the shared part that went out


class Participation(Protocol):
    """A participation policy."""

    @property
    def needs_fixed_speeds(self) -> bool:
        """True where the same clients must be the fastest in every round."""
        ...

    @property
    def wants_gradient(self) -> bool:
        """True where answers must carry the gradient at the received model."""
        ...

    @property
    def sees_communication(self) -> bool:
        """True where decisions depend on the cost of communication: another C, another run."""
        ...

    def begin(self, population: int) -> Memory:
        """Check that the policy fits the population, and return its memory before round 1."""
        ...

    def call(self, memory: Memory, round: int, population: int) -> Call:
        """Whom the round numbered ``round`` (from 0) is to call."""
        ...

    def learn(self, memory: Memory, outcome: Outcome) -> Memory:
        """The memory after the round."""
        ...


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """The part that all policies have in common: which clients are asked at all.

    ``sample`` is a fraction of the population (a float) or a number of clients (an int);
    everyone by default. ``resample`` says whether a new sample is drawn every round or every stage.
    """

    sample: float | int = 1.0
    resample: Literal["round", "stage"] = "round"

    needs_fixed_speeds: ClassVar[bool] = False
    wants_gradient: ClassVar[bool] = False
    sees_communication: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.resample not in ("round", "stage"):
            raise ConfigError(f"resample must be 'round' or 'stage', not '{self.resample}'")
        number("the sample", self.sample)
        if isinstance(self.sample, float) and not 0 < self.sample <= 1:
            raise ConfigError(
                f"the sampled fraction must be above 0 and at most 1, not {self.sample}"
            )
        if isinstance(self.sample, int) and self.sample < 1:
            raise ConfigError(f"at least one client must be sampled, not {self.sample}")

    def asked(self, population: int) -> int:
        """N, the number of clients that a round asks."""
        if isinstance(self.sample, float):
            return max(1, round(self.sample * population))
        return self.sample

    def begin(self, population: int) -> Memory:
        if self.asked(population) > population:
            raise ConfigError(
                f"cannot sample {self.asked(population)} clients of {population}: "
                "lower the sample or raise the number of clients"
            )
        return {}

    def learn(self, memory: Memory, outcome: Outcome) -> Memory:
        return memory

    def drawn(self, round: int, stage: int) -> int:
        return round if self.resample == "round" else stage


STAGE = 10  # rounds that a sample stays where a policy has no stages of its own: the paper's ten


def checked_start(start: int | None, asked: int) -> int:
    """n0: a tenth of those asked, unless given."""
    if start is None:
        return max(1, asked // 10)
    if whole("the number of clients to wait for", start) < 1:
        raise ConfigError(f"the first stage must wait for at least one client, not {start}")
    if start > asked:
        raise ConfigError(
            f"the first stage waits for {start} clients but only {asked} are asked: "
            "lower the start or sample more clients"
        )
    return start

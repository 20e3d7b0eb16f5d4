"""Whose answers a round waits for, decided from what a server sees and from nothing else.

A policy is asked before each round whom to call (:meth:`Participation.call`) and is told
afterwards what came of it (:meth:`Participation.learn`). What it wants to remember is a JSON value
that the run's state keeps, so that a resumed run decides as an uninterrupted one would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from srpfl.core.fields import check_fields
from srpfl.core.slots import Slots
from srpfl.core.split import Params
from srpfl.errors import ConfigError, number, whole

Memory = Mapping[str, Any]  # JSON values only
TOLD_IF_CHANGED = {"told": "if changed"}  # in run folders, which may be older than a field


@dataclass(frozen=True)
class Call:
    """What a policy wants of the next round."""

    ask: int  # N: how many clients get the model
    wait: int  # n: the round ends with the first n answers
    stage: int = 0
    draw: int = 0  # which random sample of clients: the same number, the same clients
    deadline: float | None = None  # the round ends then with what it has, but never with nothing
    grace: float = 0.0  # by such a part of its length the round is made longer to hear more than n
    # What becomes of answers that a round does not wait for. Where they are kept, `ask` is how many
    # clients are at work at any time, and an answer counts in the round in which it comes.
    late: Literal["drop", "keep"] = field(default="drop", repr=False)
    # By how many rounds a kept answer may be behind: older ones are waited for, or dropped.
    max_age: int | None = field(default=None, repr=False)
    too_old: Literal["wait", "drop"] = field(default="wait", repr=False)
    partial: bool = field(default=False, repr=False)  # at the deadline clients send what they have

    def end(self, nth: float, communication: float) -> float:
        """When the round ends whose n-th answer came at this time."""
        return nth + self.grace * (nth + communication)


@dataclass(frozen=True)
class Answer:
    """What a participant sends back. What it keeps is not in it."""

    client: int
    time: float  # since it was asked
    shared: Params
    loss: float
    samples: int
    sent: Slots = field(default_factory=dict)  # what the algorithm or the policy wants beside it
    age: int = 0  # how many versions of the shared part came after the one that it started from
    part: float = 1.0  # of the local work that was done
    credit: float = 1.0  # by its age, where its weights are the client's own, not those sent


@dataclass(frozen=True)
class Credit:
    """How an answer counts whose client has started from an older model than the server's."""

    weight: float = 1.0  # of its update, or in the mix of the two models
    of: Literal["update", "model"] = "update"


@dataclass(frozen=True)
class Outcome:
    """What a server knows after a round."""

    round: int
    call: Call
    asked: Sequence[int]
    answers: Sequence[Answer]  # those that counted, in order of arrival
    duration: float  # from sending to its end; without communication, unless late answers are kept
    communication: float  # of an exchange, beside the clients' computing
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

    def choose(
        self, memory: Memory, call: Call, idle: Sequence[int], rng: np.random.Generator
    ) -> Sequence[int]:
        """Whom to ask, of those that can be asked now."""
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
    compares: ClassVar[bool] = False  # looks at how answers differ

    def __post_init__(self) -> None:
        check_fields(self)
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

    def choose(
        self, memory: Memory, call: Call, idle: Sequence[int], rng: np.random.Generator
    ) -> Sequence[int]:
        return uniform(call.ask, idle, rng)

    def learn(self, memory: Memory, outcome: Outcome) -> Memory:
        return memory

    def drawn(self, round: int, stage: int) -> int:
        return round if self.resample == "round" else stage


def uniform(count: int, idle: Sequence[int], rng: np.random.Generator) -> tuple[int, ...]:
    """So many clients at random, without replacement, in ascending order."""
    if count >= len(idle):
        return tuple(idle)
    places = rng.choice(len(idle), size=count, replace=False)
    return tuple(idle[place] for place in np.sort(places))


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

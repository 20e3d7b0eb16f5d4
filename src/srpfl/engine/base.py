"""The seam between the round loop and whatever computes: jobs in, results out.

An engine is built for one model, one federated data set and one task. It keeps no state of a run: a
job holds all that it depends on, so any engine gives the same answer to the same job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from srpfl.core.means import Weighting
from srpfl.core.plan import Plan
from srpfl.core.rules import ABOUT, PERSONAL, SENT
from srpfl.core.slots import Given, Reply, Slots, Trained
from srpfl.core.split import Params

GRADIENT = "gradient"  # the slot of an answer that holds the gradient at what was sent


class Finishes(Protocol):
    """What an algorithm does with a client's work when it is done, for one client."""

    def finish(self, given: Given, trained: Trained) -> Reply: ...


@dataclass(frozen=True)
class Job:
    """The local work of a cohort."""

    seed: int
    round: int
    purpose: str  # "train", or the kind of evaluation: each has random streams of its own
    clients: Sequence[int]
    shared: Params  # what the server sent: the same for everyone
    personal: Sequence[Params]  # each client's own part, in the order of `clients`
    plans: tuple[Plan, ...]
    server: Slots = field(default_factory=dict)  # what else the server sent
    own: Sequence[Slots] = ()  # each client's own slots, if there are any
    wants_gradient: bool = False  # also the full gradient of the loss at what was received
    finisher: Finishes | None = None  # None: answers and parts as they were trained
    # The server makes nothing of the answers but their mean, with such weights: an engine may put
    # the mean of some answers, in double precision, in the place of each of them.
    mean_by: Weighting | None = None
    run: int = 0  # whose data the clients have, where an engine has those of several runs

    def own_of(self, place: int) -> Slots:
        return self.own[place] if self.own else {}

    def given(self, place: int) -> Given:
        return Given(self.shared, self.personal[place], self.server, self.own_of(place))


@dataclass(frozen=True)
class Local:
    """What comes of a client's local work."""

    client: int
    reply: Reply
    loss: float  # mean over the steps of the first plan's last phase, each being its batch's mean
    samples: int


@dataclass(frozen=True)
class Score:
    """A client's test: the task's scores, summed over the samples, and the samples' weight."""

    client: int
    sums: tuple[float, ...]
    weight: float


class Engine(Protocol):
    """Carries out local work. Several jobs may be of several runs, or of one run with several
    versions of the shared part."""

    def train(self, jobs: Sequence[Job]) -> list[list[Local]]:
        """Do the plans for every client of each job, independently of one another."""
        ...

    def test(self, jobs: Sequence[Job]) -> list[list[Score]]:
        """Do the plans (there may be none) for every client, then test; nothing is kept."""
        ...


def seen_by_rules(given: Given) -> Slots:
    """What a rule may look at, by name."""
    own = {PERSONAL: given.personal, **given.own, ABOUT: given.about}
    return {SENT: given.shared, **given.server, **own}


def numbered_phases(plans: Sequence[Plan]) -> list[list[int]]:
    """A number for each phase of each plan: the number of its random streams."""
    numbers: list[list[int]] = []
    for plan in plans:
        first = sum(map(len, numbers))
        numbers.append(list(range(first, first + len(plan.phases))))
    return numbers

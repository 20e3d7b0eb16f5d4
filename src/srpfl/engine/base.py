"""The seam between the round loop and whatever computes: jobs in, results out.

An engine is built for one model and one federated data set. It keeps no state of a run: a job
holds all that it depends on, so any engine gives the same answer to the same job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from srpfl.local import Plan
from srpfl.split import Params

Loss = Callable[[Tensor, Tensor], Tensor]  # outputs and targets to one loss per sample


@dataclass(frozen=True)
class Job:
    """The local work of a cohort."""

    seed: int
    round: int
    purpose: str  # "train", or the kind of evaluation: each has random streams of its own
    clients: Sequence[int]
    shared: Params  # what the server sent: the same for everyone
    personal: Sequence[Params]  # each client's own part, in the order of `clients`
    plan: Plan
    wants_gradient: bool = False  # also the full gradient of the loss at what was received


@dataclass(frozen=True)
class Local:
    """What a client has after its local work."""

    client: int
    shared: Params
    personal: Params
    loss: float  # mean over the steps of the last phase, each step's being its batch's mean
    samples: int
    gradient: Params | None = None  # of the mean loss over the client's samples, shared part only


@dataclass(frozen=True)
class Score:
    """How many of a client's test samples its model got right."""

    client: int
    correct: int
    total: int


class Engine(Protocol):
    """Carries out local work."""

    def train(self, job: Job) -> list[Local]:
        """Do the plan for every client of the job, independently of one another."""
        ...

    def test(self, job: Job) -> list[Score]:
        """Do the plan (it may be empty) for every client, then test; nothing is kept."""
        ...


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of classifiers."""
    return nn.functional.cross_entropy(outputs, targets, reduction="none")

"""The clients that are trained as one: of one job, or of several jobs with equal plans.

Clients of different jobs have nothing in common but the shape of what they do. So whatever is the
same for all clients of a job is kept by job, and made each client's own where jobs meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from srpfl.core.plan import Plan
from srpfl.core.rules import ABOUT, PERSONAL, SENT, RuleState
from srpfl.core.slots import Slots
from srpfl.core.split import Params
from srpfl.data.base import IntArray
from srpfl.engine.base import Job
from srpfl.engine.store import Held

Jobs = Mapping[int, Job]  # by their place among the engine's jobs


class Member(NamedTuple):
    """A client, by its job and its place there."""

    job: int
    place: int


@dataclass
class Cohort:
    """Clients on their way through a plan, sorted so that those with most samples come first."""

    jobs: Jobs
    members: list[Member]
    held: Held
    common: dict[int, Params]  # by job: the same for all of its clients
    stack: Params  # clients first
    slots: dict[int, Slots]  # by job: what the server sent beside the shared part
    own: Slots  # clients first
    about: Params  # clients first
    moments: RuleState = field(default_factory=dict)
    losses: Tensor | None = None

    @property
    def plans(self) -> tuple[Plan, ...]:
        return self.jobs[self.members[0].job].plans

    @property
    def shared(self) -> Params:
        """The names of the shared part are the same in all jobs."""
        return self.jobs[self.members[0].job].shared

    @property
    def clients(self) -> list[int]:
        """Their numbers, each in its own run."""
        return [self.jobs[job].clients[place] for job, place in self.members]

    @property
    def job_of(self) -> IntArray:
        return np.array([member.job for member in self.members], dtype=np.int64)

    def spread(self, names: Iterable[str]) -> None:
        """Make common parameters each client's own."""
        for name in names:
            values = {job: part.pop(name) for job, part in self.common.items() if name in part}
            if values:
                self.stack[name] = self.rows(values)

    def rows(self, values: Mapping[int, Tensor]) -> Tensor:
        """A row for each client, of values by job."""
        if len(values) == 1:
            [value] = values.values()
            return value.expand(len(self.members), *value.shape)
        return torch.stack([values[member.job] for member in self.members])

    def given(self) -> tuple[Slots, Slots]:
        """What rules and algorithms see of the beginning: what all clients have in common, and what
        each has of its own."""
        whole = {job: {SENT: dict(self.common[job]), **self.slots[job]} for job in self.common}
        own = {PERSONAL: dict(self.stack), **self.own, ABOUT: dict(self.about)}
        if len(whole) == 1:
            [common] = whole.values()
            return common, own
        first = next(iter(whole.values()))
        for slot, names in first.items():
            own[slot] = {n: self.rows({job: s[slot][n] for job, s in whole.items()}) for n in names}
        return {}, own


def members(jobs: Jobs) -> list[Member]:
    """Everyone in the jobs."""
    return [Member(job, place) for job, its in jobs.items() for place in range(len(its.clients))]


def alike(jobs: Jobs) -> list[Jobs]:
    """The jobs in groups that can be one cohort: with equal plans and an equal split."""
    groups: list[dict[int, Job]] = []
    for number, job in jobs.items():
        for group in groups:
            if _form(next(iter(group.values()))) == _form(job):
                group[number] = job
                break
        else:
            groups.append({number: job})
    return list(groups)


def _form(job: Job) -> tuple[object, ...]:
    slots = {slot: list(tensors) for slot, tensors in job.server.items()}
    return job.plans, job.shared.keys(), slots, job.finisher, job.wants_gradient

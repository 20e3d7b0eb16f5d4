"""The clients that are trained as one: of one job, or of several jobs with an equal plan.

Clients of different runs have nothing in common but the shape of what they do. So whatever is the
same for all clients of a run is kept by run, and made each client's own where runs meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from srpfl.data.base import IntArray
from srpfl.engine.base import Job
from srpfl.engine.store import Held
from srpfl.local import Plan, RuleState
from srpfl.split import Params

Jobs = Mapping[int, Job]  # by run: the place of its data among the engine's


class Member(NamedTuple):
    """A client, by its place in the job of its run."""

    run: int
    place: int


@dataclass
class Cohort:
    """Clients on their way through a plan, sorted so that those with most samples come first."""

    jobs: Jobs
    members: list[Member]
    held: Held
    common: dict[int, Params]  # by run: the same for all of its clients
    stack: Params  # clients first
    moments: RuleState = field(default_factory=dict)
    losses: Tensor | None = None

    @property
    def plan(self) -> Plan:
        return self.jobs[self.members[0].run].plan

    @property
    def clients(self) -> list[int]:
        """Their numbers, each in its own run."""
        return [self.jobs[run].clients[place] for run, place in self.members]

    @property
    def runs(self) -> IntArray:
        return np.array([member.run for member in self.members], dtype=np.int64)

    def spread(self, names: Sequence[str]) -> None:
        """Make common parameters each client's own."""
        for name in names:
            values = {run: part.pop(name) for run, part in self.common.items() if name in part}
            if len(values) == 1:
                [value] = values.values()
                self.stack[name] = value.expand(len(self.members), *value.shape)
            elif values:
                self.stack[name] = torch.stack([values[member.run] for member in self.members])


def members(jobs: Jobs) -> list[Member]:
    """Everyone in the jobs."""
    return [Member(run, place) for run, job in jobs.items() for place in range(len(job.clients))]


def alike(jobs: Jobs) -> list[Jobs]:
    """The jobs in groups that can be one cohort: with equal plans and an equal split."""
    groups: list[dict[int, Job]] = []
    for run, job in jobs.items():
        for group in groups:
            first = next(iter(group.values()))
            if first.plan == job.plan and first.shared.keys() == job.shared.keys():
                group[run] = job
                break
        else:
            groups.append({run: job})
    return list(groups)

"""Many clients as one: parameters stacked, one set of tensor operations for a whole cohort.

Three things make it fast. Clients are stacked, so a step of all is a few large operations. What
is the same for every client is done once (see :mod:`srpfl.engine.phases`). And a step is traced, so
that nothing but tensor operations is left of it (see :mod:`srpfl.engine.steps`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from srpfl.core.devices import on_gpu
from srpfl.core.rules import ABOUT, PERSONAL, SENT
from srpfl.core.slots import Given, Reply, Slots, Trained, about
from srpfl.core.split import Params, fixed_of
from srpfl.data.base import Federated
from srpfl.data.joined import joined
from srpfl.engine.base import GRADIENT, Finishes, Job, Local, Score
from srpfl.engine.batchnorm import with_noted_statistics
from srpfl.engine.cohort import Cohort, Jobs, Member, alike, members
from srpfl.engine.convolution import with_fused_convolutions
from srpfl.engine.dropout import with_keyed_dropout
from srpfl.engine.features import Passes
from srpfl.engine.fit import drops_by_function
from srpfl.engine.layers import with_stackable_layers
from srpfl.engine.phases import Phases
from srpfl.engine.precision import Precision
from srpfl.engine.recomputed import with_recomputed_blocks
from srpfl.engine.scoring import full_gradients, scores
from srpfl.engine.stackable import check_rule, check_stackable
from srpfl.engine.steps import part_of
from srpfl.engine.store import Held, Part, Store
from srpfl.engine.threads import one_thread, quiet, uncompiled
from srpfl.task import Classification, Task

T = TypeVar("T")
SMALLEST_PASS = 50
CPU_PASS = 100  # samples in one forward pass without gradients
CPU_CLIENTS = 1000  # in a cohort: what more of them need would be fresh memory every time


class VectorisedEngine:
    """Trains a cohort as one stack; on a CPU, as stacks that fit its caches.

    With joined data it carries out jobs of several runs as one, each on a part of the data.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Federated,
        *,
        task: Task = Classification(),
        device: str | torch.device = "cpu",
        precision: str = "float32",
        together: int | None = None,  # clients in a stack; None: as many as pay
        checked: bool = False,  # whether the model is known to be stackable
    ) -> None:
        if not checked:
            check_stackable(model, data, task)
        self.device, self.precision = torch.device(device), Precision.of(precision)
        drops = drops_by_function(model, data)
        model = with_stackable_layers(with_noted_statistics(with_keyed_dropout(model)))
        if on_gpu(self.device):
            model = with_fused_convolutions(model)
        model = with_recomputed_blocks(model)
        self.model = self.precision.placed(model, self.device)
        self.data, self.task = joined(data), task
        self.store = Store(self.data, self.device)
        fixed = fixed_of(self.model)
        self.passes = Passes(self.data.transform, self.precision, task, CPU_PASS, fixed, drops)
        self.phases = Phases(
            *(self.model, task, self.data.transform, self.precision, self.passes, self.device)
        )
        self.phases.together, self.phases.most = together, CPU_CLIENTS
        if on_gpu(self.device):
            self.phases.most = 1 << 30
            memory = torch.cuda.get_device_properties(self.device).total_memory
            self.passes.most = min(40_000, memory >> 19)
            self.phases.in_block = min(2 << 30, memory >> 4)

    def train(self, jobs: Sequence[Job]) -> list[list[Local]]:
        return self._in_groups(jobs, self._train)

    def test(self, jobs: Sequence[Job]) -> list[list[Score]]:
        return self._in_groups(jobs, self._test)

    def _in_groups(
        self, jobs: Sequence[Job], work: Callable[[Jobs, Sequence[Member]], list[T]]
    ) -> list[list[T]]:
        """All clients of the jobs, as many at a time as memory holds."""
        answers: list[list[T]] = [[] for _ in jobs]
        with one_thread(), self.precision.switched(), quiet(), uncompiled():
            for group in alike(dict(enumerate(jobs))):
                left = members(group)
                for plan in group[left[0].job].plans if left else ():
                    check_rule(plan.rule)
                while left:
                    some = left[: self.phases.most]
                    try:
                        done = work(group, some)
                    except torch.OutOfMemoryError:
                        if len(some) == 1 and self.passes.most < SMALLEST_PASS:
                            raise
                        self._use_less_memory(len(some))
                        continue
                    for member, answer in zip(some, done, strict=True):
                        answers[member.job].append(answer)
                    left = left[len(some) :]
        return answers

    def _use_less_memory(self, clients: int) -> None:
        """Half as much of everything, after so many clients were too many."""
        self.phases.most = max(1, clients // 2)
        self.passes.most, self.phases.in_block = self.passes.most // 2, self.phases.in_block // 2
        self.phases.programs.clear()
        torch.cuda.empty_cache()

    def _train(self, jobs: Jobs, asked: Sequence[Member]) -> list[Local]:
        gradients = self._full_gradients(jobs, asked)
        cohort = self._start(jobs, asked)
        given = cohort.given()
        steps = self.phases.carry_out(cohort)
        losses = [0.0] * len(asked) if cohort.losses is None else cohort.losses.tolist()
        replies = self._replies(cohort, given, steps, gradients)
        answers: dict[Member, Local] = {}
        for row, (member, reply) in enumerate(zip(cohort.members, replies, strict=True)):
            client = jobs[member.job].clients[member.place]
            samples = int(cohort.held.sizes[row])
            answers[member] = Local(client, reply, losses[row], samples)
        return [answers[member] for member in asked]

    def _replies(
        self,
        cohort: Cohort,
        given: tuple[Slots, Slots],
        steps: Tensor,
        gradients: dict[Member, Params],
    ) -> list[Reply]:
        """What each client sends and keeps, in the order of the cohort."""
        first, count = cohort.jobs[cohort.members[0].job], len(cohort.members)
        found: list[Reply] = []
        if first.finisher is None:
            stack, slots = rows_of(cohort.stack, count), rows_of(cohort.own, count)
            for member, own, kept in zip(cohort.members, stack, slots, strict=True):
                job = cohort.jobs[member.job]
                state = {**cohort.common[member.job], **own}
                found.append(
                    Reply(
                        {name: state[name] for name in job.shared},
                        {name: state[name] for name in job.personal[member.place]},
                        kept,
                    )
                )
        else:
            cohort.spread(list(first.shared))
            trained = Trained(
                {name: cohort.stack[name] for name in first.shared},
                {name: cohort.stack[name] for name in first.personal[0]},
                cohort.own,
                steps,
                _stacked([gradients.get(member, {}) for member in cohort.members]),
            )
            found = finished(first.finisher, given, list(first.server), trained)
        return [
            reply._replace(sent={**reply.sent, GRADIENT: gradients[member]})
            if member in gradients
            else reply
            for reply, member in zip(found, cohort.members, strict=True)
        ]

    def _test(self, jobs: Jobs, asked: Sequence[Member]) -> list[Score]:
        cohort = self._start(jobs, asked)
        self.phases.carry_out(cohort)
        found: dict[Member, Score] = {}
        for job, common in cohort.common.items():
            rows = np.flatnonzero(cohort.job_of == job).tolist()
            mine = [cohort.members[row] for row in rows]
            held = self._hold("test", jobs, mine)
            every = len(mine) == len(cohort.members)
            stack = {n: v if every else v[rows] for n, v in cohort.stack.items()}
            sums, weights = scores(self.phases, common, stack, held)
            for member, numbers, weight in zip(mine, sums.tolist(), weights.tolist(), strict=True):
                client = jobs[job].clients[member.place]
                found[member] = Score(client, tuple(numbers), weight)
        return [found[member] for member in asked]

    def _start(self, jobs: Jobs, asked: Sequence[Member]) -> Cohort:
        def size(member: Member) -> int:
            return self.data.size(self._number(jobs, member))

        sorted_by_size = sorted(asked, key=size, reverse=True)
        those = dict.fromkeys(member.job for member in asked)
        common = {job: self._on_device(jobs[job].shared) for job in those}
        slots = {job: self._slots_on_device(jobs[job].server) for job in those}
        stack = self._stack([jobs[job].personal[place] for job, place in sorted_by_size])
        owns = [jobs[job].own_of(place) for job, place in sorted_by_size]
        own = {slot: self._stack([each[slot] for each in owns]) for slot in owns[0]}
        held = self._hold("train", jobs, sorted_by_size)
        numbers = [jobs[job].clients[place] for job, place in sorted_by_size]
        rounds = [jobs[job].round for job, _ in sorted_by_size]
        told = about(numbers, held.sizes.tolist(), rounds, self.precision.kept, self.device)
        return Cohort(jobs, sorted_by_size, held, common, stack, slots, own, told)

    def _stack(self, parts: Sequence[Params]) -> Params:
        """Parts as one, clients first."""
        # Many clients may still have the very same part: send it to the device once.
        sent: dict[int, Tensor] = {}
        for part in parts:
            for value in part.values():
                if id(value) not in sent:
                    sent[id(value)] = self._cast(value)
        return {name: torch.stack([sent[id(p[name])] for p in parts]) for name in parts[0]}

    def _hold(self, part: Part, jobs: Jobs, some: Sequence[Member]) -> Held:
        return self.store.hold(part, [self._number(jobs, member) for member in some])

    def _number(self, jobs: Jobs, member: Member) -> int:
        job = jobs[member.job]
        return self.data.number(job.run, job.clients[member.place])

    def _full_gradients(self, jobs: Jobs, asked: Sequence[Member]) -> dict[Member, Params]:
        """Gradients of each client's mean loss at what the server sent, where they are wanted."""
        found: dict[Member, Params] = {}
        for number, job in jobs.items():
            mine = [member for member in asked if member.job == number]
            if job.wants_gradient and mine:
                cohort = self._start(jobs, mine)
                names = [name for name in self.phases.names if name in job.shared]
                common = cohort.common[number]
                gradients = full_gradients(self.phases, names, common, cohort.stack, cohort.held)
                for row, member in enumerate(cohort.members):
                    found[member] = {name: value[row] for name, value in gradients.items()}
        return found

    def _on_device(self, part: Params) -> Params:
        return {name: self._cast(value) for name, value in part.items()}

    def _slots_on_device(self, slots: Slots) -> Slots:
        return {slot: self._on_device(part) for slot, part in slots.items()}

    def _cast(self, value: Tensor) -> Tensor:
        return self.precision.cast(value, self.device)


def finished(
    finisher: Finishes, given: tuple[Slots, Slots], server: Sequence[str], trained: Trained
) -> list[Reply]:
    """What an algorithm makes of each client's work: for all of them as one, or in turn where it
    does what cannot be done so."""
    common, own = given

    def one(own: Slots, trained: Trained) -> Reply:
        both = {**common, **own}
        kept = {slot: both[slot] for slot in both if slot in trained.own}
        sent = {slot: both[slot] for slot in server}
        has = Given(both[SENT], both[PERSONAL], sent, kept, both[ABOUT])
        return finisher.finish(has, trained)

    count = len(trained.steps)
    try:
        stacked: Any = torch.vmap(one)(own, trained)
    except Exception:  # what it does may look at values; in turn, its own errors show
        return [one(part_of(own, row), part_of(trained, row)) for row in range(count)]
    return rows_of(stacked, count)


def rows_of(stacked: Any, count: int) -> list[Any]:
    """The same nesting for each client; tensors are parted all at once, and nested by the column,
    not client by client."""
    if isinstance(stacked, Tensor):
        return list(stacked.unbind())
    values = stacked.values() if isinstance(stacked, dict) else stacked
    columns = [rows_of(value, count) for value in values]
    rows = list(zip(*columns, strict=True)) if columns else [()] * count
    if isinstance(stacked, dict):
        return [dict(zip(stacked, row, strict=True)) for row in rows]
    return [type(stacked)(*row) for row in rows] if hasattr(stacked, "_fields") else rows


def _stacked(parts: Sequence[Params]) -> Params:
    return {name: torch.stack([part[name] for part in parts]) for name in parts[0]}

"""Many clients as one: parameters stacked, one set of tensor operations for a whole cohort.

Three things make it fast. Clients are stacked, so a step of all is a few large operations. What
is the same for every client is done once: while only heads train, inputs go through the common part
in large passes, and without augmentation and dropout only once for all epochs. And a step is
traced, so that nothing but tensor operations is left of it (see :mod:`srpfl.engine.steps`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from srpfl.data.base import Federated
from srpfl.data.joined import Joined
from srpfl.engine.base import Job, Local, Loss, Score, cross_entropy
from srpfl.engine.cohort import Cohort, Jobs, Member, alike, members
from srpfl.engine.convolution import with_fused_convolutions
from srpfl.engine.draws import draw
from srpfl.engine.dropout import key_names, with_keyed_dropout
from srpfl.engine.features import Once, Passes
from srpfl.engine.fit import probe
from srpfl.engine.heads import head_forward, head_module, without_head
from srpfl.engine.layers import with_stackable_layers
from srpfl.engine.precision import Precision, called
from srpfl.engine.programs import Programs
from srpfl.engine.schedule import Order, Schedule
from srpfl.engine.span import FirstLayer, Span, first_layer, padded, spans
from srpfl.engine.stackable import check_stackable
from srpfl.engine.steps import Batch, Carried, Problem, copy_all, filled, flat, room_for
from srpfl.engine.store import Held, Part, Store
from srpfl.engine.task import Task
from srpfl.engine.threads import one_thread
from srpfl.local import RuleState, kept, resumed
from srpfl.split import Params

T = TypeVar("T")
CPU_STACK = 4 << 20  # bytes of parameters in a stack beyond which a CPU's caches are too small
SMALLEST_PASS = 50
CPU_PASS = 100  # samples in one forward pass without gradients
CPU_BLOCK = 32 << 20  # bytes of inputs that are made ready at a time


@dataclass(frozen=True)
class View:
    """How outputs are computed from samples: through the whole model, or a common body and
    heads."""

    problem: Problem
    body: nn.Module | None = None
    head: str = ""

    def sees(self, common: Params) -> Params:
        """The common parameters that the problem itself uses."""
        return {n: v for n, v in common.items() if self.body is None or _inside(n, self.head)}


class VectorisedEngine:
    """Trains a cohort as one stack; on a CPU, as stacks that fit its caches.

    With joined data it carries out jobs of several runs as one, each on a part of the data.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Federated,
        *,
        loss: Loss = cross_entropy,
        device: str | torch.device = "cpu",
        precision: str = "float32",
        together: int | None = None,  # clients in a stack; None: as many as pay
    ) -> None:
        check_stackable(model, data)
        self.device, self.precision = torch.device(device), Precision.of(precision)
        model = with_stackable_layers(with_keyed_dropout(model))
        if self.device.type == "cuda":
            model = with_fused_convolutions(model)
        self.model = model.to(device=self.device, dtype=self.precision.kept)
        self.names = [name for name, p in self.model.named_parameters() if p.requires_grad]
        self.data = data if isinstance(data, Joined) else Joined([data])
        self.loss, self.together = loss, together
        self.store = Store(self.data, self.device)
        self.programs = Programs(self.device, self.precision)
        # Halved when memory runs out: clients at a time, samples in a pass, bytes in a block.
        self.most, self.in_block = 1 << 30, CPU_BLOCK
        self.passes = Passes(self.data.transform, self.precision, loss, CPU_PASS)
        if self.device.type == "cuda":
            memory = torch.cuda.get_device_properties(self.device).total_memory
            self.passes.most = min(40_000, memory >> 19)
            self.in_block = min(2 << 30, memory >> 4)
        self._views: dict[str, View | None] = {}  # by the head's name
        self._whole = View(Problem(self._forward, loss, tuple(key_names(self.model))))
        lowered = self.precision.computed != self.precision.kept
        like = self._cast(probe(data))
        self._first: FirstLayer | None = None  # if it may be trained in the span of the samples
        if not lowered and not self.data.transform.augments and like.is_floating_point():
            self._first = first_layer(self.model, self._whole.problem, like)

    def train(self, job: Job) -> list[Local]:
        return self.train_together({0: job})[0]

    def test(self, job: Job) -> list[Score]:
        return self.test_together({0: job})[0]

    def train_together(self, jobs: Jobs) -> dict[int, list[Local]]:
        """:meth:`train` for jobs of several runs. Those with equal plans are one cohort."""
        return self._in_groups(jobs, self._train)

    def test_together(self, jobs: Jobs) -> dict[int, list[Score]]:
        return self._in_groups(jobs, self._test)

    def _in_groups(
        self, jobs: Jobs, work: Callable[[Jobs, Sequence[Member]], list[T]]
    ) -> dict[int, list[T]]:
        """All clients of the jobs, as many at a time as memory holds."""
        answers: dict[int, list[T]] = {run: [] for run in jobs}
        with one_thread(), self.precision.switched():
            for group in alike(jobs):
                left = members(group)
                while left:
                    some = left[: self.most]
                    try:
                        done = work(group, some)
                    except torch.OutOfMemoryError:
                        if len(some) == 1 and self.passes.most < SMALLEST_PASS:
                            raise
                        self._use_less_memory(len(some))
                        continue
                    for member, answer in zip(some, done, strict=True):
                        answers[member.run].append(answer)
                    left = left[len(some) :]
        return answers

    def _use_less_memory(self, clients: int) -> None:
        """Half as much of everything, after so many clients were too many."""
        self.most = max(1, clients // 2)
        self.passes.most, self.in_block = self.passes.most // 2, self.in_block // 2
        self.programs.clear()
        torch.cuda.empty_cache()

    def _train(self, jobs: Jobs, asked: Sequence[Member]) -> list[Local]:
        gradients = self._full_gradients(jobs, asked)
        cohort = self._start(jobs, asked)
        self._carry_out(cohort)
        losses = [0.0] * len(asked) if cohort.losses is None else cohort.losses.tolist()
        answers: dict[Member, Local] = {}
        for row, member in enumerate(cohort.members):
            job = jobs[member.run]
            own = {name: value[row] for name, value in cohort.stack.items()}
            state = {**cohort.common[member.run], **own}
            answers[member] = Local(
                client=job.clients[member.place],
                shared={name: state[name] for name in job.shared},
                personal={name: state[name] for name in job.personal[member.place]},
                loss=losses[row],
                samples=int(cohort.held.sizes[row]),
                gradient=gradients.get(member),
            )
        return [answers[member] for member in asked]

    def _test(self, jobs: Jobs, asked: Sequence[Member]) -> list[Score]:
        cohort = self._start(jobs, asked)
        self._carry_out(cohort)
        scores: dict[Member, Score] = {}
        for run, common in cohort.common.items():
            rows = np.flatnonzero(cohort.runs == run).tolist()
            mine = [cohort.members[row] for row in rows]
            held = self._hold("test", jobs, mine)
            every = len(mine) == len(cohort.members)
            stack = {n: v if every else v[rows] for n, v in cohort.stack.items()}
            correct = self._correct(common, stack, held).tolist()
            for member, right, total in zip(mine, correct, held.sizes, strict=True):
                client = jobs[run].clients[member.place]
                scores[member] = Score(client, int(right), int(total))
        return [scores[member] for member in asked]

    def _start(self, jobs: Jobs, asked: Sequence[Member]) -> Cohort:
        def size(member: Member) -> int:
            return self.data.size(self._number(jobs, member))

        sorted_by_size = sorted(asked, key=size, reverse=True)
        common = {
            run: {name: self._cast(value) for name, value in jobs[run].shared.items()}
            for run in dict.fromkeys(member.run for member in asked)
        }
        parts = [jobs[run].personal[place] for run, place in sorted_by_size]
        # Many clients may still have the very same part: send it to the device once.
        sent: dict[int, Tensor] = {}
        for part in parts:
            for value in part.values():
                if id(value) not in sent:
                    sent[id(value)] = self._cast(value)
        stack = {name: torch.stack([sent[id(p[name])] for p in parts]) for name in parts[0]}
        held = self._hold("train", jobs, sorted_by_size)
        return Cohort(jobs, sorted_by_size, held, common, stack)

    def _hold(self, part: Part, jobs: Jobs, some: Sequence[Member]) -> Held:
        return self.store.hold(part, [self._number(jobs, member) for member in some])

    def _number(self, jobs: Jobs, member: Member) -> int:
        return self.data.number(member.run, jobs[member.run].clients[member.place])

    def _carry_out(self, cohort: Cohort) -> None:
        """Do the jobs' plan, changing the cohort."""
        jobs = [cohort.jobs[member.run] for member in cohort.members]
        for number, phase in enumerate(cohort.plan.phases):
            trained = [name for name in self.names if name in phase.trains]
            sizes = [int(size) for size in cohort.held.sizes]
            drawn = draw(jobs, cohort.clients, number, sizes, self.data.transform, self.device)
            if not trained or not any(drawn.steps):
                continue
            cohort.spread(trained)
            schedule = Schedule.of(drawn, cohort.held, self.precision.kept)
            start = Carried({n: cohort.stack[n] for n in trained}, {})
            start = Carried(start.params, self._moments(cohort, start.params))
            carried, losses = self._phase(cohort, schedule, start)
            cohort.stack.update(carried.params)
            cohort.moments = kept(cohort.moments, carried.moments)
            took = schedule.steps > 0
            mean = losses / schedule.steps.clamp(min=1)
            before = mean.new_zeros(()) if cohort.losses is None else cohort.losses
            cohort.losses = torch.where(took, mean, before)

    def _moments(self, cohort: Cohort, params: Params) -> RuleState:
        """The optimiser's state, with one row per client also where the rule keeps one number."""
        state = resumed(cohort.plan.rule, cohort.moments, params)
        count = len(cohort.members)
        return {
            slot: {name: value.expand(count, *value.shape[1:]) for name, value in values.items()}
            for slot, values in state.items()
        }

    def _phase(self, cohort: Cohort, schedule: Schedule, start: Carried) -> tuple[Carried, Tensor]:
        """All steps of a phase, and each client's sum of losses."""
        view = self._view(cohort.stack, cohort.held.x)
        common = view.sees(next(iter(cohort.common.values())))
        if len(cohort.common) > 1:  # then it is common within a run only
            cohort.spread(list(common))
            common = {}
        frozen = {n: v for n, v in cohort.stack.items() if n not in start.params}
        linear = self._first_layer(cohort, view, start.params)
        self.model.train()
        once = None
        if view.body is not None and not self.data.transform.augments and not key_names(view.body):
            runs = np.repeat(cohort.runs, cohort.held.sizes)
            once = Once(self.passes.features_by_run(view.body, cohort, runs, _all(cohort.held)))
        carried = room_for(start)
        sums: list[Tensor] = []
        for first, last, layer in self._stacks(cohort, schedule, linear, start.params):
            before, after = (_rows(some, first, last) for some in (start, carried))
            problem, ready, span = view.problem, once, None
            if layer is None:
                now = after
                copy_all(now, before)
            else:
                span = self._span(layer, cohort.held, before.params[layer.weight], first, last)
                now, problem, ready = span.enter(before), layer.problem, span.once
            total = schedule.steps.new_zeros(last - first, dtype=self.precision.kept)
            numbers = (cohort.held.x if ready is None else ready.rows)[0].numel()
            most = self._steps_at_once(numbers * (last - first))
            for order in schedule.orders(first, last, most):
                active = len(order.rows)
                batches = self._batches(cohort, view, order, ready)
                own = {n: v[first : first + active] for n, v in frozen.items()}
                task = Task(problem, cohort.plan.rule, order.ragged)
                going = _rows(now, 0, active)
                total[:active] += self.programs.run(task, going, own, common, batches).sum(0)
            if span is not None:
                span.leave(now, after)
            sums.append(total)
        return carried, torch.cat(sums)

    def _stacks(
        self, cohort: Cohort, schedule: Schedule, layer: FirstLayer | None, params: Params
    ) -> Iterator[tuple[int, int, FirstLayer | None]]:
        """The cohort cut into stacks: from which client to which, and the first layer if it is
        trained in the span of their samples."""
        sizes, batch = cohort.held.sizes, schedule.index.shape[2]

        def kind(row: int) -> int:
            """0, or the size roughly: in a stack all have room for as much as the largest."""
            size = int(sizes[row])
            pays = layer is not None and layer.pays(size, schedule.counts[row], batch)
            return padded(size).bit_length() if pays else 0

        for found, group in itertools.groupby(range(len(sizes)), kind):
            rows = list(group)
            own = layer if found else None
            trained = params if own is None else own.instead(params, int(sizes[rows[0]]))
            for first, last in _cut(rows[0], rows[-1] + 1, self._stack_size(trained)):
                yield first, last, own

    def _first_layer(self, cohort: Cohort, view: View, params: Params) -> FirstLayer | None:
        """The first layer if this phase can train it in the span of the samples."""
        layer = self._first
        if layer is None or view is not self._whole or layer.weight not in params:
            return None
        begun = any(layer.weight in values for values in cohort.moments.values())
        return layer if spans(cohort.plan.rule) and not begun else None

    def _span(self, layer: FirstLayer, held: Held, weight: Tensor, first: int, last: int) -> Span:
        start, sizes = int(held.starts[first]), held.sizes[first:last]
        index = torch.arange(start, start + int(sizes.sum()), device=self.device)
        x = self.passes.inputs(held.x, index).flatten(1)
        return Span.of(layer, weight, x, sizes.tolist(), start)

    def _batches(self, cohort: Cohort, view: View, order: Order, once: Once | None) -> Batch:
        """The inputs of several steps, steps first, through the common body if there is one."""
        index = order.index.flatten()
        moves = None if order.augment is None else order.augment.flatten(0, 2)
        y = cohort.held.y[index].reshape(order.index.shape)
        if once is not None:
            x = once.at(index)
        elif view.body is not None:
            steps, _, width = order.index.shape
            runs = np.tile(cohort.runs[order.rows], steps)
            keys = order.keys.flatten()
            x = self.passes.features_by_run(view.body, cohort, runs, index, moves, keys, width)
        else:
            x = self.passes.inputs(cohort.held.x, index, moves)
        x = x.reshape(*order.index.shape, *x.shape[1:])
        return Batch(x, y, order.weights, order.keys, order.active)

    def _view(self, stack: Params, x: Tensor) -> View:
        """Through a common body if all that clients have of their own is a head."""
        head = head_module(self.model, stack)
        if head is None:
            return self._whole
        if head not in self._views:
            probe = self.data.transform.prepare(x[:2], self.precision.kept)
            body = without_head(self.model, head, probe)
            problem = Problem(self.precision.lowered(head_forward(head)), self.loss, head=head)
            self._views[head] = None if body is None else View(problem, body, head)
        return self._views[head] or self._whole

    def _forward(self, params: Params, x: Tensor) -> Tensor:
        return self.precision.lowered(called(self.model))(params, x)

    def _correct(self, common: Params, stack: Params, held: Held) -> Tensor:
        """How many of its test samples each client of one run gets right."""
        view = self._view(stack, held.x)
        self.model.eval()
        once = None
        if view.body is not None:
            once = self.passes.features(view.body, common, held.x, _all(held))
        common = view.sees(common)
        parts: list[Tensor] = []
        size = self._stack_size(stack)
        for first, last in _cut(0, len(held.sizes), size):
            own = {name: value[first:last] for name, value in stack.items()}
            right = held.y.new_zeros(last - first)
            keys = held.y.new_zeros(last - first)
            for index, present in _columns(held, first, last, self.passes.most, self.device):
                if once is not None:
                    x = once[index]
                else:
                    x = self.passes.inputs(held.x, index.flatten())
                    x = x.reshape(*index.shape, *x.shape[1:])
                with torch.no_grad():
                    outputs = view.problem.outputs(own, common, x, keys)
                right += ((outputs.argmax(2) == held.y[index]) & present).sum(1)
            parts.append(right)
        return torch.cat(parts)

    def _full_gradients(self, jobs: Jobs, asked: Sequence[Member]) -> dict[Member, Params]:
        """Gradients of each client's mean loss at what the server sent, where they are wanted."""
        found: dict[Member, Params] = {}
        for run, job in jobs.items():
            mine = [member for member in asked if member.run == run]
            if job.wants_gradient and mine:
                cohort = self._start(jobs, mine)
                names = [name for name in self.names if name in job.shared]
                gradients = self._gradients_at(names, cohort.common[run], cohort.stack, cohort.held)
                for row, member in enumerate(cohort.members):
                    found[member] = {name: value[row] for name, value in gradients.items()}
        return found

    def _gradients_at(
        self, names: Sequence[str], common: Params, stack: Params, held: Held
    ) -> Params:
        """Full gradients of clients of one run by these parameters, without dropout."""
        problem = self._whole.problem
        self.model.eval()
        size = self._stack_size({n: common[n][None] for n in names})
        parts: list[Params] = []
        for first, last in _cut(0, len(held.sizes), size):
            own = {name: value[first:last] for name, value in stack.items()}
            at = {n: common[n].expand(last - first, *common[n].shape) for n in names}
            rest = {n: v for n, v in common.items() if n not in at}
            whole = torch.as_tensor(held.sizes[first:last, None], device=self.device)
            total = {n: torch.zeros_like(v) for n, v in at.items()}
            keys = held.y.new_zeros(last - first)
            for index, present in _columns(held, first, last, self.passes.most, self.device):
                flat = self.passes.inputs(held.x, index.flatten())
                weights = present.to(self.precision.kept) / whole
                batch = Batch(
                    flat.reshape(*index.shape, *flat.shape[1:]),
                    held.y[index],
                    weights,
                    keys,
                    present.any(1),
                )
                _, grads = problem.losses_and_gradient(at, own, rest, batch)
                total = {n: total[n] + grads[n] for n in names}
            parts.append(total)
        return {n: torch.cat([part[n] for part in parts]) for n in names}

    def _stack_size(self, params: Params) -> int:
        """How many clients make a stack: on a GPU all, on a CPU what its caches hold."""
        if self.together is not None:
            return self.together
        if self.device.type == "cuda" or not params:
            return self.most
        each = sum(value[0].numel() * value.element_size() for value in params.values())
        # Convolutions gain nothing from a stack on a CPU: they would become grouped ones.
        if any(value.ndim > 3 for value in params.values()):
            return 1
        return max(1, CPU_STACK // max(1, each))

    def _steps_at_once(self, numbers: int) -> Callable[[int], int]:
        """How many steps, given the batch size, for so many numbers in one sample of each."""
        each = numbers * torch.finfo(self.precision.kept).bits // 8
        return lambda width: max(1, self.in_block // (each * width))

    def _cast(self, value: Tensor) -> Tensor:
        return self.precision.cast(value, self.device)


def _all(held: Held) -> Tensor:
    return torch.arange(len(held.y), device=held.y.device)


def _inside(name: str, module: str) -> bool:
    return name.startswith(f"{module}.")


def _cut(start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Pieces of at most that size, as equal as can be."""
    for rows in np.array_split(np.arange(start, end), -(-(end - start) // size)):
        yield int(rows[0]), int(rows[-1]) + 1


def _columns(
    held: Held, first: int, last: int, most: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Samples of the clients first..last side by side, some columns at a time: their indices
    and which of them are there."""
    sizes, starts = held.sizes[first:last, None], held.starts[first:last, None]
    longest, step = int(sizes.max()), max(1, most // (last - first))
    for left in range(0, longest, step):
        column = np.arange(left, min(left + step, longest))[None]
        present = column < sizes
        index = np.where(present, starts + column, 0)
        yield torch.as_tensor(index, device=device), torch.as_tensor(present, device=device)


def _rows(carried: Carried, first: int, last: int) -> Carried:
    rows: Carried = filled(carried, [tensor[first:last] for tensor in flat(carried)])
    return rows

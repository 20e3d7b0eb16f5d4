"""Many clients as one: parameters stacked, one set of tensor operations for a whole cohort.

Three things make it fast. Clients are stacked, so a step of all is a few large operations. What
is the same for every client is done once: while only heads train, inputs go through the common part
in large passes, and without augmentation and dropout only once for all epochs. And a step is
traced, so that nothing but tensor operations is left of it (see :mod:`srpfl.engine.steps`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from srpfl.data.base import Federated
from srpfl.engine.base import Job, Local, Loss, Score, cross_entropy
from srpfl.engine.convolution import with_fused_convolutions
from srpfl.engine.draws import draw
from srpfl.engine.dropout import key_names, with_keyed_dropout
from srpfl.engine.heads import head_forward, head_module, without_head
from srpfl.engine.inputs import inputs
from srpfl.engine.layers import with_stackable_layers
from srpfl.engine.loop import one_thread
from srpfl.engine.precision import Precision, called
from srpfl.engine.programs import Programs
from srpfl.engine.schedule import Order, Schedule
from srpfl.engine.steps import Batch, Carried, Problem, filled, flat, owned
from srpfl.engine.store import Held, Store
from srpfl.engine.task import Task
from srpfl.errors import ConfigError
from srpfl.local import RuleState, kept, resumed
from srpfl.split import Params

T = TypeVar("T")
CPU_STACK = 4 << 20  # bytes of parameters in a stack beyond which a CPU's caches are too small
SMALLEST_PASS = 50
CPU_PASS = 100  # samples in one forward pass without gradients
CPU_BLOCK = 32 << 20  # bytes of inputs that are made ready at a time


@dataclass
class Cohort:
    """Clients on their way through a plan, sorted so that those with most samples come first."""

    places: list[int]  # where each client stands in the job
    clients: list[int]
    held: Held
    common: Params  # the same for all
    stack: Params  # clients first
    moments: RuleState = field(default_factory=dict)
    losses: Tensor | None = None

    def spread(self, names: Sequence[str]) -> None:
        """Make common parameters each client's own."""
        for name in names:
            if name in self.common:
                value = self.common.pop(name)
                self.stack[name] = value.expand(len(self.clients), *value.shape)


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
    """Trains a cohort as one stack; on a CPU, as stacks that fit its caches."""

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
        refuse_batch_statistics(model)
        self.device, self.precision = torch.device(device), Precision.of(precision)
        model = with_stackable_layers(with_keyed_dropout(model))
        if self.device.type == "cuda":
            model = with_fused_convolutions(model)
        self.model = model.to(device=self.device, dtype=self.precision.kept)
        self.names = [name for name, _ in self.model.named_parameters()]
        self.data, self.loss, self.together = data, loss, together
        self.store = Store(data, self.device)
        self.programs = Programs(self.device, self.precision)
        # Halved when memory runs out: clients at a time, samples in a pass, bytes in a block.
        self.most, self.in_pass, self.in_block = 1 << 30, CPU_PASS, CPU_BLOCK
        if self.device.type == "cuda":
            memory = torch.cuda.get_device_properties(self.device).total_memory
            self.in_pass = min(40_000, memory >> 19)
            self.in_block = min(2 << 30, memory >> 4)
        self._views: dict[str, View | None] = {}  # by the head's name
        self._whole = View(Problem(self._forward, loss, tuple(key_names(self.model))))

    def train(self, job: Job) -> list[Local]:
        return self._in_groups(job, self._train)

    def test(self, job: Job) -> list[Score]:
        return self._in_groups(job, self._test)

    def _in_groups(self, job: Job, work: Callable[[Job, Sequence[int]], list[T]]) -> list[T]:
        """All clients of the job, as many at a time as memory holds."""
        done: list[T] = []
        with one_thread(), self.precision.switched():
            while len(done) < len(job.clients):
                places = range(len(done), min(len(done) + self.most, len(job.clients)))
                try:
                    done += work(job, places)
                except torch.OutOfMemoryError:
                    if len(places) == 1 and self.in_pass < SMALLEST_PASS:
                        raise
                    self.most = max(1, len(places) // 2)
                    self.in_pass, self.in_block = self.in_pass // 2, self.in_block // 2
                    self.programs.clear()
                    torch.cuda.empty_cache()
        return done

    def _train(self, job: Job, places: Sequence[int]) -> list[Local]:
        cohort = self._start(job, places)
        gradients = self._full_gradients(job, cohort) if job.wants_gradient else None
        self._carry_out(job, cohort)
        losses = [0.0] * len(places) if cohort.losses is None else cohort.losses.tolist()
        answers: list[Local] = []
        for row, place in enumerate(cohort.places):
            state = {**cohort.common, **{name: v[row] for name, v in cohort.stack.items()}}
            answers.append(
                Local(
                    client=cohort.clients[row],
                    shared={name: state[name] for name in job.shared},
                    personal={name: state[name] for name in job.personal[place]},
                    loss=losses[row],
                    samples=int(cohort.held.sizes[row]),
                    gradient=gradients and {name: g[row] for name, g in gradients.items()},
                )
            )
        return _in_order(cohort.places, answers)

    def _test(self, job: Job, places: Sequence[int]) -> list[Score]:
        cohort = self._start(job, places)
        self._carry_out(job, cohort)
        held = self.store.hold("test", cohort.clients)
        correct = self._correct(cohort, held).tolist()
        scores = [
            Score(client, int(right), int(total))
            for client, right, total in zip(cohort.clients, correct, held.sizes, strict=True)
        ]
        return _in_order(cohort.places, scores)

    def _start(self, job: Job, places: Sequence[int]) -> Cohort:
        places = sorted(places, key=lambda place: -self.data.size(job.clients[place]))
        clients = [job.clients[place] for place in places]
        common = {name: self._cast(value) for name, value in job.shared.items()}
        parts = [job.personal[place] for place in places]
        # Many clients may still have the very same part: send it to the device once.
        sent: dict[int, Tensor] = {}
        for part in parts:
            for value in part.values():
                if id(value) not in sent:
                    sent[id(value)] = self._cast(value)
        stack = {name: torch.stack([sent[id(p[name])] for p in parts]) for name in parts[0]}
        return Cohort(places, clients, self.store.hold("train", clients), common, stack)

    def _carry_out(self, job: Job, cohort: Cohort) -> None:
        """Do the job's plan, changing the cohort."""
        for number, phase in enumerate(job.plan.phases):
            trained = [name for name in self.names if name in phase.trains]
            sizes = [int(size) for size in cohort.held.sizes]
            drawn = draw(job, cohort.clients, number, sizes, self.data.transform, self.device)
            if not trained or not any(drawn.steps):
                continue
            cohort.spread(trained)
            schedule = Schedule.of(drawn, cohort.held, self.precision.kept)
            start = Carried({n: cohort.stack[n] for n in trained}, {})
            start = Carried(start.params, self._moments(job, cohort, start.params))
            carried, losses = self._phase(job, cohort, schedule, start)
            cohort.stack.update(carried.params)
            cohort.moments = kept(cohort.moments, carried.moments)
            took = schedule.steps > 0
            mean = losses / schedule.steps.clamp(min=1)
            before = mean.new_zeros(()) if cohort.losses is None else cohort.losses
            cohort.losses = torch.where(took, mean, before)

    def _moments(self, job: Job, cohort: Cohort, params: Params) -> RuleState:
        """The optimiser's state, with one row per client also where the rule keeps one number."""
        state = resumed(job.plan.rule, cohort.moments, params)
        count = len(cohort.clients)
        return {
            slot: {name: value.expand(count, *value.shape[1:]) for name, value in values.items()}
            for slot, values in state.items()
        }

    def _phase(
        self, job: Job, cohort: Cohort, schedule: Schedule, start: Carried
    ) -> tuple[Carried, Tensor]:
        """All steps of a phase, and each client's sum of losses."""
        frozen = {n: v for n, v in cohort.stack.items() if n not in start.params}
        view = self._view(cohort)
        self.model.train()
        once = None
        if view.body is not None and not self.data.transform.augments and not key_names(view.body):
            once = self._features(view.body, cohort, cohort.held.x, _all(cohort.held))
        common = view.sees(cohort.common)
        carried = owned(start)
        sums: list[Tensor] = []
        count = len(cohort.clients)
        size = self._stack_size(start.params)
        for rows in np.array_split(np.arange(count), -(-count // size)):
            first, last = int(rows[0]), int(rows[-1]) + 1
            total = schedule.steps.new_zeros(last - first, dtype=self.precision.kept)
            for order in schedule.orders(first, last, self._steps_at_once(cohort, last - first)):
                active = len(order.rows)
                batches = self._batches(cohort, view, order, once)
                now = _rows(carried, first, first + active)
                own = {n: v[first : first + active] for n, v in frozen.items()}
                task = Task(view.problem, job.plan.rule, order.ragged)
                total[:active] += self.programs.run(task, now, own, common, batches).sum(0)
            sums.append(total)
        return carried, torch.cat(sums)

    def _batches(self, cohort: Cohort, view: View, order: Order, once: Tensor | None) -> Batch:
        """The inputs of several steps, steps first, through the common body if there is one."""
        index = order.index.flatten()
        moves = None if order.augment is None else order.augment.flatten(0, 2)
        y = cohort.held.y[index].reshape(order.index.shape)
        if once is not None:
            x = once[index]
        elif view.body is not None:
            width = order.index.shape[2]
            x = self._features(view.body, cohort, cohort.held.x, index, moves, order.keys, width)
        else:
            x = self._inputs(cohort.held.x, index, moves)
        x = x.reshape(*order.index.shape, *x.shape[1:])
        return Batch(x, y, order.weights, order.keys, order.active)

    def _view(self, cohort: Cohort) -> View:
        """Through a common body if all that clients have of their own is a head."""
        head = head_module(self.model, cohort.stack)
        if head is None:
            return self._whole
        if head not in self._views:
            probe = self.data.transform.prepare(cohort.held.x[:2], self.precision.kept)
            body = without_head(self.model, head, probe)
            problem = Problem(self.precision.lowered(head_forward(head)), self.loss, head=head)
            self._views[head] = None if body is None else View(problem, body, head)
        return self._views[head] or self._whole

    def _forward(self, params: Params, x: Tensor) -> Tensor:
        return self.precision.lowered(called(self.model))(params, x)

    def _features(
        self,
        body: nn.Module,
        cohort: Cohort,
        x: Tensor,
        index: Tensor,
        moves: Tensor | None = None,
        keys: Tensor | None = None,
        width: int = 1,
    ) -> Tensor:
        """What heads see of the samples at ``index``. With keys, one for each batch of that
        width, dropout is on."""
        dropout = tuple(key_names(body)) if keys is not None else ()
        body.train(bool(dropout))
        problem = Problem(self.precision.lowered(called(body)), self.loss, dropout)
        inside = body.state_dict().keys()
        common = {name: value for name, value in cohort.common.items() if name in inside}
        each = max(1, self.in_pass // width) * width
        parts: list[Tensor] = []
        with torch.no_grad():
            for start in range(0, len(index), each):
                some = slice(start, start + each)
                images = self._inputs(x, index[some], None if moves is None else moves[some])
                if dropout and keys is not None:
                    own = keys.flatten()[start // width : (start + each) // width]
                    batches = images.reshape(-1, width, *images.shape[1:])
                    features = problem.outputs({}, common, batches, own).flatten(0, 1)
                else:
                    features = problem.forward(common, images)
                parts.append(features)
        return torch.cat(parts)

    def _inputs(self, x: Tensor, index: Tensor, moves: Tensor | None = None) -> Tensor:
        return inputs(self.data.transform, x, index, moves, self.precision)

    def _correct(self, cohort: Cohort, held: Held) -> Tensor:
        """How many of its test samples each client gets right."""
        view = self._view(cohort)
        self.model.eval()
        once = None
        if view.body is not None:
            once = self._features(view.body, cohort, held.x, _all(held))
        common = view.sees(cohort.common)
        parts: list[Tensor] = []
        size = self._stack_size(cohort.stack)
        every = np.arange(len(cohort.clients))
        for rows in np.array_split(every, -(-len(every) // size)):
            first, last = int(rows[0]), int(rows[-1]) + 1
            own = {name: value[first:last] for name, value in cohort.stack.items()}
            right = held.y.new_zeros(last - first)
            keys = held.y.new_zeros(last - first)
            for index, present in _columns(held, first, last, self.in_pass, self.device):
                if once is not None:
                    x = once[index]
                else:
                    x = self._inputs(held.x, index.flatten())
                    x = x.reshape(*index.shape, *x.shape[1:])
                with torch.no_grad():
                    outputs = view.problem.outputs(own, common, x, keys)
                right += ((outputs.argmax(2) == held.y[index]) & present).sum(1)
            parts.append(right)
        return torch.cat(parts)

    def _full_gradients(self, job: Job, cohort: Cohort) -> Params:
        """Gradients of each client's mean loss at what the server sent, without dropout."""
        problem = self._whole.problem
        self.model.eval()
        common, names = dict(cohort.common), [n for n in self.names if n in job.shared]
        size = self._stack_size({n: common[n][None] for n in names})
        parts: list[Params] = []
        held = cohort.held
        every = np.arange(len(cohort.clients))
        for rows in np.array_split(every, -(-len(every) // size)):
            first, last = int(rows[0]), int(rows[-1]) + 1
            own = {name: value[first:last] for name, value in cohort.stack.items()}
            at = {n: common[n].expand(last - first, *common[n].shape) for n in names}
            rest = {n: v for n, v in common.items() if n not in at}
            whole = torch.as_tensor(held.sizes[first:last, None], device=self.device)
            total = {n: torch.zeros_like(v) for n, v in at.items()}
            keys = held.y.new_zeros(last - first)
            for index, present in _columns(held, first, last, self.in_pass, self.device):
                flat = self._inputs(held.x, index.flatten())
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

    def _steps_at_once(self, cohort: Cohort, clients: int) -> Callable[[int], int]:
        sample = cohort.held.x[0].numel() * torch.finfo(self.precision.kept).bits // 8
        return lambda width: max(1, self.in_block // (sample * clients * width))

    def _cast(self, value: Tensor) -> Tensor:
        return self.precision.cast(value, self.device)


def refuse_batch_statistics(model: nn.Module) -> None:
    """Statistics over a batch would mix padding, and a stack of clients has no place for them."""
    for name, module in model.named_modules():
        if isinstance(module, _NormBase) and (
            module.track_running_stats or "BatchNorm" in type(module).__name__
        ):
            raise ConfigError(
                f"the vectorised engine cannot train '{name}' ({type(module).__name__}): its "
                "statistics run over a batch; use engine='loop' or 'workers', or GroupNorm instead"
            )


def _all(held: Held) -> Tensor:
    return torch.arange(len(held.y), device=held.y.device)


def _inside(name: str, module: str) -> bool:
    return name.startswith(f"{module}.")


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


def _in_order(places: Sequence[int], items: Sequence[T]) -> list[T]:
    """Items of a sorted cohort in the job's order."""
    return [item for _, item in sorted(zip(places, items, strict=True), key=lambda pair: pair[0])]

"""A cohort on its way through its plans: stacks of clients, step by step.

What is the same for every client is done once: while only heads train, inputs go through the common
part in large passes, and without augmentation and dropout only once for all epochs. A linear first
layer may be trained in the span of the samples. Everything else goes through the whole model.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from srpfl.core.backbone import copied
from srpfl.core.devices import on_gpu
from srpfl.core.plan import Plan
from srpfl.core.rules import ABOUT, STEPS, RuleState, kept, resumed
from srpfl.core.slots import Slots
from srpfl.core.split import Params
from srpfl.core.trees import Tree, leaves, mapped, take
from srpfl.data.base import Transform
from srpfl.engine.base import numbered_phases
from srpfl.engine.batchnorm import present_names, statistics_names
from srpfl.engine.cohort import Cohort
from srpfl.engine.draws import draw
from srpfl.engine.dropout import key_names
from srpfl.engine.features import Once, Passes
from srpfl.engine.heads import head_forward, head_module, without_head
from srpfl.engine.modes import set_modes
from srpfl.engine.precision import Precision
from srpfl.engine.programs import Programs
from srpfl.engine.schedule import Order, Schedule
from srpfl.engine.span import FirstLayer, Span, first_layer, padded, spans
from srpfl.engine.step_kind import StepKind
from srpfl.engine.steps import (
    Batch,
    Carried,
    Objective,
    copy_all,
    part_of,
    room_for,
    start_of_each,
)
from srpfl.engine.store import Held
from srpfl.task import Task

CPU_STACK = 4 << 20  # bytes of parameters in a stack beyond which a CPU's caches are too small


@dataclass(frozen=True)
class View:
    """How outputs are computed from samples: through the whole model, or a common body and
    heads."""

    objective: Objective
    body: nn.Module | None = None
    head: str = ""

    def sees(self, common: Params) -> Params:
        """The common parameters that the objective itself uses."""
        inside = f"{self.head}."
        return {n: v for n, v in common.items() if self.body is None or n.startswith(inside)}


class Phases:
    """Carries out plans. ``model`` is the engine's, on its device, made ready for stacks."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        transform: Transform,
        precision: Precision,
        passes: Passes,
        device: torch.device,
    ) -> None:
        self.model, self.task, self.transform, self.precision = model, task, transform, precision
        self.passes, self.device = passes, device
        self.names = [name for name, p in model.named_parameters() if p.requires_grad]
        self.statistics = statistics_names(model)
        self.programs = Programs(device, precision)
        # Halved when memory runs out: clients at a time, bytes of inputs in a block.
        self.together: int | None = None  # clients in a stack; None: as many as pay
        self.most, self.in_block = 1 << 30, 32 << 20
        forward = precision.called(model, passes.fixed)
        present = tuple(present_names(model))
        self.whole = View(Objective(forward, task, tuple(key_names(model)), present))
        # A model may keep what it computed, and then cannot be copied: a copy that nobody calls.
        self._clean = copied(model)
        self._views: dict[str, View | None] = {}  # by the head's name
        self._first: FirstLayer | None = None  # if it may be trained in the span of the samples
        plain = precision.computed == precision.kept and not transform.augments
        if plain and not self.statistics and not passes.fixed:
            self._first = first_layer(copied(model), self.whole.objective)

    def carry_out(self, cohort: Cohort) -> Tensor:
        """Do the cohort's plans, changing it; how many steps each client took on the model."""
        common, own = cohort.given()
        steps = torch.zeros(len(cohort.members), device=self.device, dtype=self.precision.kept)
        losses: Tensor | None = None
        start = replace(cohort, common={job: dict(part) for job, part in cohort.common.items()})
        start.stack = dict(cohort.stack)
        for number, (plan, phases) in enumerate(
            zip(cohort.plans, numbered_phases(cohort.plans), strict=True)
        ):
            at = cohort
            if plan.slot is not None:
                at = _with_slot(start, plan.slot)
            at.moments, at.losses = {}, None
            taken = self._plan(at, plan, phases, common, own)
            for slot in plan.keeps:
                cohort.own[slot] = {**cohort.own[slot], **at.moments.get(slot, {})}
            if plan.slot is None:
                steps += taken
            else:
                cohort.own[plan.slot] = {name: at.stack[name] for name in cohort.own[plan.slot]}
            losses = at.losses if number == 0 else losses
        cohort.losses = losses
        return steps

    def _plan(
        self, cohort: Cohort, plan: Plan, numbers: list[int], common: Slots, own: Slots
    ) -> Tensor:
        jobs = [cohort.jobs[member.job] for member in cohort.members]
        sizes = [int(size) for size in cohort.held.sizes]
        steps = torch.zeros(len(jobs), device=self.device, dtype=self.precision.kept)
        own = {**own, ABOUT: {**own[ABOUT], STEPS: steps.new_tensor(_steps(plan, sizes))}}
        for number, phase in zip(numbers, plan.phases, strict=True):
            trained = [name for name in self.names if name in phase.trains]
            drawn = draw(
                *(jobs, cohort.clients, phase, number, plan.batch_size),
                *(sizes, self.transform, self.device),
            )
            if not trained or not any(drawn.steps):
                continue
            updated = set_modes(self.model, phase.trains, cohort.shared)
            changing = [n for n in self.statistics if n.rpartition(".")[0] in updated]
            cohort.spread([*trained, *changing])
            schedule = Schedule.of(drawn, cohort.held, self.precision.kept)
            params = {name: cohort.stack[name] for name in trained}
            moments = self._moments(cohort, plan, params, common, own)
            start = Carried(params, moments, {name: cohort.stack[name] for name in changing})
            carried, losses = self._phase(cohort, plan, schedule, start)
            cohort.stack.update({**carried.params, **carried.statistics})
            cohort.moments = kept(cohort.moments, carried.moments)
            took = schedule.steps > 0
            mean = losses / schedule.steps.clamp(min=1)
            before = mean.new_zeros(()) if cohort.losses is None else cohort.losses
            cohort.losses = torch.where(took, mean, before)
            steps += schedule.steps
        return steps

    def _moments(
        self, cohort: Cohort, plan: Plan, params: Params, common: Slots, own: Slots
    ) -> RuleState:
        """The optimiser's state, with a row for each client."""
        return resumed(start_of_each(plan.rule, params, common, own), cohort.moments)

    def _phase(
        self, cohort: Cohort, plan: Plan, schedule: Schedule, start: Carried
    ) -> tuple[Carried, Tensor]:
        """All steps of a phase, and each client's sum of losses."""
        view = self.view(cohort.stack, cohort.held.x)
        common = view.sees(next(iter(cohort.common.values())))
        if len(cohort.common) > 1:  # then it is common within a job only
            cohort.spread(list(common))
            common = {}
        changing = (*start.params, *start.statistics)
        frozen = {n: v for n, v in cohort.stack.items() if n not in changing}
        linear = self._first_layer(cohort, view, plan, start.params)
        once = None
        steady = view.body is not None and not self.passes.random(view.body)
        if view.body is not None and steady and not self.transform.augments:
            owners = np.repeat(cohort.job_of, cohort.held.sizes)
            every = torch.arange(len(cohort.held.y), device=self.device)
            once = Once(self.passes.features_by_job(view.body, cohort, owners, every))
        carried = room_for(start)
        sums: list[Tensor] = []
        for first, last, layer in self._stacks(cohort, schedule, linear, start.params):
            before, after = (part_of(some, slice(first, last)) for some in (start, carried))
            objective, ready, span = view.objective, once, None
            if layer is None:
                now = after
                copy_all(now, before)
            else:
                span = self._span(layer, cohort.held, before.params[layer.weight], first, last)
                now, objective, ready = span.enter(before), layer.objective, span.once
            total = schedule.steps.new_zeros(last - first, dtype=self.precision.kept)
            sample = take(cohort.held.x, 0) if ready is None else ready.rows[0]
            numbers = sum(tensor.numel() for tensor in leaves(sample))
            most = self._steps_at_once(numbers * (last - first))
            for order in schedule.orders(first, last, most):
                active = len(order.rows)
                batches = self._batches(cohort, view, order, ready)
                own = {n: v[first : first + active] for n, v in frozen.items()}
                kind = StepKind(self._ready(objective, start, order), plan.rule, order.ragged)
                going = part_of(now, slice(0, active))
                total[:active] += self.programs.run(kind, going, own, common, batches).sum(0)
            if span is not None:
                span.leave(now, after)
            sums.append(total)
        return carried, torch.cat(sums)

    def _ready(self, objective: Objective, start: Carried, order: Order) -> Objective:
        """With what this phase's normalisation layers need."""
        if not start.statistics and not objective.present:
            return objective
        there = objective.present if order.padded else ()
        return replace(objective, updates=tuple(start.statistics), present=there)

    def _stacks(
        self, cohort: Cohort, schedule: Schedule, layer: FirstLayer | None, params: Params
    ) -> Iterator[tuple[int, int, FirstLayer | None]]:
        """The cohort cut into stacks: from which client to which, and the first layer if it is
        trained in the span of their samples."""
        sizes, batch = cohort.held.sizes, schedule.index.shape[2]

        @functools.cache
        def kind(size: int, steps: int) -> int:
            """0, or the size roughly: in a stack all have room for as much as the largest."""
            pays = layer is not None and layer.pays(size, steps, batch)
            return padded(size).bit_length() if pays else 0

        kinds = list(map(kind, sizes.tolist(), schedule.counts))
        for found, group in itertools.groupby(range(len(kinds)), kinds.__getitem__):
            rows = list(group)
            own = layer if found else None
            trained = params if own is None else own.instead(params, int(sizes[rows[0]]))
            for first, last in cut(rows[0], rows[-1] + 1, self.stack_size(trained)):
                yield first, last, own

    def _first_layer(
        self, cohort: Cohort, view: View, plan: Plan, params: Params
    ) -> FirstLayer | None:
        """The first layer if this phase can train it in the span of the samples."""
        layer, x = self._first, cohort.held.x
        if layer is None or view is not self.whole or layer.weight not in params:
            return None
        if not isinstance(x, Tensor) or x[0].numel() != layer.inputs:
            return None
        begun = any(layer.weight in values for values in cohort.moments.values())
        return layer if spans(plan.rule) and not begun else None

    def _span(self, layer: FirstLayer, held: Held, weight: Tensor, first: int, last: int) -> Span:
        start, sizes = int(held.starts[first]), held.sizes[first:last]
        index = torch.arange(start, start + int(sizes.sum()), device=self.device)
        x = self.passes.inputs(held.x, index).flatten(1)
        return Span.of(layer, weight, x, sizes.tolist(), start)

    def _batches(self, cohort: Cohort, view: View, order: Order, once: Once | None) -> Batch:
        """The inputs of several steps, steps first, through the common body if there is one."""
        index = order.index.flatten()
        moves = None if order.augment is None else order.augment.flatten(0, 2)
        y = cohort.held.y[index].reshape(*order.index.shape, *cohort.held.y.shape[1:])
        x: Tree
        if once is not None:
            x = once.at(index)
        elif view.body is not None:
            steps, _, width = order.index.shape
            owners = np.tile(cohort.job_of[order.rows], steps)
            keys = order.keys.flatten()
            x = self.passes.features_by_job(view.body, cohort, owners, index, moves, keys, width)
        else:
            x = self.passes.inputs(cohort.held.x, index, moves)
        x = mapped(lambda tensor: tensor.reshape(*order.index.shape, *tensor.shape[1:]), x)
        return Batch(x, y, order.weights, order.keys, order.active)

    def view(self, stack: Params, x: Tree) -> View:
        """Through a common body if all that clients have of their own is a head."""
        head = head_module(self.model, stack)
        if head is None:
            return self.whole
        if head not in self._views:
            low = self.precision.computed
            few = self.transform.prepare(take(x, slice(0, 2)), low)
            body = without_head(self._clean, head, few, low)
            forward = head_forward(head, self.precision)
            objective = Objective(forward, self.task, head=head)
            self._views[head] = None if body is None else View(objective, body, head)
        return self._views[head] or self.whole

    def stack_size(self, params: Params) -> int:
        """How many clients make a stack: on a GPU all, on a CPU what its caches hold."""
        if self.together is not None:
            return self.together
        if on_gpu(self.device) or not params:
            return self.most
        each = sum(value[0].numel() * value.element_size() for value in params.values())
        # Convolutions gain nothing from a stack on a CPU: they would become grouped ones.
        if any(value.ndim > 3 for value in params.values()):
            return 1
        return max(1, CPU_STACK // max(1, each))

    def _steps_at_once(self, numbers: int) -> Callable[[int], int]:
        """How many steps, given the batch size, for so many numbers in one sample of each."""
        each = numbers * torch.finfo(self.precision.kept).bits // 8
        return lambda width: max(1, self.in_block // max(1, each * width))


def _steps(plan: Plan, sizes: list[int]) -> list[float]:
    known = {size: float(plan.step_count(size)) for size in set(sizes)}
    return [known[size] for size in sizes]


def _with_slot(cohort: Cohort, slot: str) -> Cohort:
    """The cohort as it began, with a slot in the place of the model."""
    own = cohort.own[slot]
    common = {
        job: {name: value for name, value in part.items() if name not in own}
        for job, part in cohort.common.items()
    }
    return replace(cohort, common=common, stack={**cohort.stack, **own})


def cut(start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Pieces of at most that size, as equal as can be."""
    for rows in np.array_split(np.arange(start, end), -(-(end - start) // size)):
        yield int(rows[0]), int(rows[-1]) + 1

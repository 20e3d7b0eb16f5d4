"""Steps made ready once and run many times: traced on a CPU, captured in a graph on a GPU."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from srpfl.core.devices import on_gpu
from srpfl.core.split import Params
from srpfl.engine.graphs import CapturedSteps
from srpfl.engine.heads import fits_kernel, train_heads
from srpfl.engine.precision import Precision
from srpfl.engine.step_kind import StepKind
from srpfl.engine.steps import (
    Batch,
    Carried,
    advance,
    called_quickly,
    copy_all,
    filled,
    flat,
    part_of,
    take_step,
    traced,
)
from srpfl.engine.updates import takes_factors, update_in_place, with_factors
from srpfl.errors import SrpflWarning

KEPT = 64
UNROLLED = 25  # steps in one CUDA graph, at most


class Programs:
    """Runs steps. A program is kept for each kind and shape."""

    def __init__(self, device: torch.device, precision: Precision) -> None:
        self.device, self.precision = device, precision
        # The kind is kept beside its program, so that no other rule gets the same id.
        self._kept: OrderedDict[Hashable, tuple[Any, StepKind]] = OrderedDict()
        self._said: set[str] = set()

    def clear(self) -> None:
        self._kept.clear()

    def run(
        self, kind: StepKind, carried: Carried, frozen: Params, common: Params, batches: Batch
    ) -> Tensor:
        """Take the steps in turn, writing over ``carried``; the losses are steps x clients."""
        if fits_kernel(kind, carried, batches, self.precision):
            return train_heads(kind, carried, batches, self.precision)
        if on_gpu(self.device):
            return self._replay(kind, carried, frozen, common, batches)
        first = part_of(batches, 0)
        tensors = carried, frozen, common, first
        make = FusedSteps if kind.fused else TracedSteps
        program = self._program(kind, tensors, partial(make, kind, *tensors))
        with torch.no_grad():
            losses: Tensor = program.run(carried, [*flat(frozen), *flat(common)], batches)
        return losses

    def _replay(
        self, kind: StepKind, carried: Carried, frozen: Params, common: Params, batches: Batch
    ) -> Tensor:
        steps = len(batches.y)
        size = -(-steps // -(-steps // UNROLLED))
        losses: list[Tensor] = []
        last: CapturedSteps | None = None
        for start in range(0, steps, size):
            some = part_of(batches, slice(start, start + size))
            tensors = carried, frozen, common, some
            program = self._program(kind, tensors, partial(CapturedSteps, kind, *tensors))
            self._say(program.against)
            if program is not last:
                program.begin(carried if last is None else last.carried, frozen, common)
            losses.append(program.run(some))
            last = program
        assert last is not None
        copy_all(carried, last.carried)
        return torch.cat(losses)

    def _say(self, against: str | None) -> None:
        """Once for each reason."""
        if against is not None and against not in self._said:
            self._said.add(against)
            warnings.warn(
                f"steps of this model cannot be captured in a CUDA graph ({against}): they are "
                "launched one operation after another, which takes several times as long",
                SrpflWarning,
                stacklevel=2,
            )

    def _program(self, kind: StepKind, tensors: Any, make: Callable[[], Any]) -> Any:
        carried, frozen, common, _ = tensors
        shapes = tuple((tuple(tensor.shape), tensor.dtype) for tensor in flat(tensors))
        names = tuple(carried.params), tuple(frozen), tuple(common), tuple(carried.moments)
        key = (kind.identity(), names, shapes)
        if key not in self._kept:
            self._kept[key] = make(), kind
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key][0]


class TracedSteps:
    """Steps as a list of tensor operations, for any rule."""

    def __init__(
        self, kind: StepKind, carried: Carried, frozen: Params, common: Params, batch: Batch
    ) -> None:
        step = partial(advance if kind.ragged else take_step, kind.objective, kind.rule)
        self.program = called_quickly(traced(step, carried, frozen, common, batch))

    def run(self, carried: Carried, fixed: list[Tensor], batches: Batch) -> Tensor:
        now, losses = flat(carried), []
        for batch in zip(*flat(batches), strict=True):
            *now, loss = self.program(*now, *fixed, *batch)
            losses.append(loss)
        copy_all(carried, filled(carried, now))
        return torch.stack(losses)


class FusedSteps:
    """Gradients as a list of tensor operations, and the update in place."""

    def __init__(
        self, kind: StepKind, carried: Carried, frozen: Params, common: Params, batch: Batch
    ) -> None:
        self.rule = kind.rule

        def gradient(
            params: Params, statistics: Params, frozen: Params, common: Params, batch: Batch
        ) -> tuple[Tensor, Params, Params]:
            losses, grads, after = kind.objective.losses_and_gradient(
                params, statistics, frozen, common, batch
            )
            return losses, after, grads  # with_factors wants the gradients last

        self.program = traced(gradient, carried.params, carried.statistics, frozen, common, batch)
        self.split = [False] * len(carried.params)
        if takes_factors(kind.rule):
            self.split = with_factors(self.program, len(carried.params))
        called_quickly(self.program)

    def run(self, carried: Carried, fixed: list[Tensor], batches: Batch) -> Tensor:
        params, losses = flat(carried.params), []
        statistics = flat(carried.statistics)
        for batch in zip(*flat(batches), strict=True):
            loss, *found = self.program(*params, *statistics, *fixed, *batch)
            for place, value in zip(statistics, found, strict=False):
                place.copy_(value)
            left = iter(found[len(statistics) :])
            grads = {
                name: (next(left), next(left)) if split else next(left)
                for name, split in zip(carried.params, self.split, strict=True)
            }
            update_in_place(self.rule, carried, grads)
            losses.append(loss)
        return torch.stack(losses)

"""Steps made ready once and run many times: traced on a CPU, captured in a graph on a GPU."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from srpfl.engine.graphs import CapturedSteps
from srpfl.engine.heads import fits_kernel, train_heads
from srpfl.engine.precision import Precision
from srpfl.engine.steps import Batch, Carried, advance, filled, flat, owned, take_step, traced
from srpfl.engine.task import Task
from srpfl.engine.updates import update_in_place
from srpfl.split import Params

KEPT = 64
UNROLLED = 25  # steps in one CUDA graph, at most


class Programs:
    """Runs steps. A program is kept for each task and shape."""

    def __init__(self, device: torch.device, precision: Precision) -> None:
        self.device, self.precision = device, precision
        # The task is kept beside its program, so that no other rule gets the same id.
        self._kept: OrderedDict[Hashable, tuple[Any, Task]] = OrderedDict()

    def clear(self) -> None:
        self._kept.clear()

    def run(
        self, task: Task, carried: Carried, frozen: Params, common: Params, batches: Batch
    ) -> tuple[Carried, Tensor]:
        """Take the steps in turn; the losses are steps x clients."""
        if fits_kernel(task, carried, batches, self.precision):
            return train_heads(task, carried, batches, self.precision)
        if self.device.type == "cuda":
            return self._replay(task, carried, frozen, common, batches)
        first = Batch(*(tensor[0] for tensor in batches))
        program = self._program(
            task,
            (carried, frozen, common, first),
            lambda: _trace(task, carried, frozen, common, first),
        )
        losses: list[Tensor] = []
        fixed = [*flat(frozen), *flat(common)]
        if task.fused:
            carried = owned(carried)
        now = flat(carried)
        with torch.no_grad():
            for batch in zip(*batches, strict=True):
                if task.fused:
                    loss, *grads = program(*flat(carried.params), *fixed, *batch)
                    update_in_place(
                        task.rule, carried, dict(zip(carried.params, grads, strict=True))
                    )
                else:
                    *now, loss = program(*now, *fixed, *batch)
                losses.append(loss)
        return carried if task.fused else filled(carried, now), torch.stack(losses)

    def _replay(
        self, task: Task, carried: Carried, frozen: Params, common: Params, batches: Batch
    ) -> tuple[Carried, Tensor]:
        steps = len(batches.y)
        size = -(-steps // -(-steps // UNROLLED))
        losses: list[Tensor] = []
        last: CapturedSteps | None = None
        for start in range(0, steps, size):
            some = Batch(*(tensor[start : start + size] for tensor in batches))
            tensors = carried, frozen, common, some
            program = self._program(task, tensors, partial(CapturedSteps, task, *tensors))
            if program is not last:
                carried = carried if last is None else last.carried
                program.begin(carried, frozen, common)
            losses.append(program.run(some))
            last = program
        assert last is not None
        return owned(last.carried), torch.cat(losses)

    def _program(self, task: Task, tensors: Any, make: Callable[[], Any]) -> Any:
        carried, frozen, common, _ = tensors
        shapes = tuple((tuple(tensor.shape), tensor.dtype) for tensor in flat(tensors))
        names = tuple(carried.params), tuple(frozen), tuple(common)
        key = (task.identity(), names, shapes)
        if key not in self._kept:
            self._kept[key] = make(), task
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key][0]


def _trace(
    task: Task, carried: Carried, frozen: Params, common: Params, batch: Batch
) -> Callable[..., list[Tensor]]:
    """To the losses and gradients where the update is fused, else to what is carried on."""
    if task.fused:
        return traced(task.problem.losses_and_gradient, carried.params, frozen, common, batch)
    step = partial(advance if task.ragged else take_step, task.problem, task.rule)
    return traced(step, carried, frozen, common, batch)

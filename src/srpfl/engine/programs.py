"""Traced steps, kept by what they depend on, and run over many batches."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor, fx

from srpfl.engine.steps import Batch, Carried, Problem, filled, flat, traced
from srpfl.local import Rule
from srpfl.split import Params

KEPT = 64


class Programs:
    """Runs steps; traces each kind once."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._kept: OrderedDict[Hashable, tuple[fx.GraphModule, Any]] = OrderedDict()

    def clear(self) -> None:
        self._kept.clear()

    def run(
        self,
        problem: Problem,
        rule: Rule,
        carried: Carried,
        frozen: Params,
        common: Params,
        batches: Batch,
        *,
        ragged: bool,
    ) -> tuple[Carried, Tensor]:
        """Take the steps in turn; the losses are steps x clients."""
        first = Batch(*(tensor[0] for tensor in batches))
        program = self._program(problem, rule, carried, frozen, common, first, ragged)
        fixed = [*flat(frozen), *flat(common)]
        tensors = flat(carried)
        losses: list[Tensor] = []
        with torch.no_grad():
            for batch in zip(*batches, strict=True):
                *tensors, loss = program(*tensors, *fixed, *batch)
                losses.append(loss)
        return filled(carried, tensors), torch.stack(losses)

    def _program(
        self,
        problem: Problem,
        rule: Rule,
        carried: Carried,
        frozen: Params,
        common: Params,
        batch: Batch,
        ragged: bool,
    ) -> fx.GraphModule:
        tensors = flat((carried, frozen, common, batch))
        shapes = tuple((tuple(t.shape), t.dtype) for t in tensors)
        names = tuple(carried.params), tuple(frozen), tuple(common)
        kind = problem.forward, problem.loss, problem.keys
        key = (kind, _identity(rule), names, shapes, ragged)
        if key not in self._kept:
            program = traced(problem, rule, carried, frozen, common, batch, ragged=ragged)
            # The rule is kept with it, because its identity may be its address.
            self._kept[key] = program, rule
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key][0]


def _identity(rule: Rule) -> Hashable:
    try:
        hash(rule)
    except TypeError:
        return type(rule), id(rule)
    return type(rule), rule

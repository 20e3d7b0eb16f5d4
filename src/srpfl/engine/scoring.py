"""Tests and full gradients: all samples of a stack of clients, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from srpfl.core.split import Params
from srpfl.core.trees import Tree, mapped
from srpfl.engine.phases import Phases, cut
from srpfl.engine.steps import Batch
from srpfl.engine.store import Held
from srpfl.task import summed


def scores(phases: Phases, common: Params, stack: Params, held: Held) -> tuple[Tensor, Tensor]:
    """Each client's scores, summed over its test samples (clients x numbers), and their weight; all
    clients are of one job."""
    view, passes = phases.view(stack, held.x), phases.passes
    phases.model.eval()
    once = None
    if view.body is not None:
        every = torch.arange(len(held.y), device=phases.device)
        once = passes.features(view.body, common, held.x, every)
    common = view.sees(common)
    found: list[tuple[Tensor, Tensor]] = []
    for first, last in cut(0, len(held.sizes), phases.stack_size(stack)):
        own = {name: value[first:last] for name, value in stack.items()}
        keys = held.y.new_zeros(last - first, dtype=torch.int64)
        parts: list[tuple[Tensor, Tensor]] = []
        for index, present in columns(held, first, last, passes.most, phases.device):
            x = once[index] if once is not None else _side_by_side(phases, held, index)
            with torch.no_grad():
                outputs, _ = view.objective.outputs(own, common, x, keys)
            flat = mapped(lambda tensor: tensor.flatten(0, 1), outputs)
            sums, weights = summed(phases.task.score(flat, held.y[index].flatten(0, 1)))
            there = present[..., None]
            sums = torch.where(there, sums.reshape(*index.shape, -1), 0).sum(1)
            parts.append((sums, torch.where(present, weights.reshape(index.shape), 0).sum(1)))
        found.append((sum(s for s, _ in parts), sum(w for _, w in parts)))  # type: ignore[arg-type]
    return torch.cat([sums for sums, _ in found]), torch.cat([weight for _, weight in found])


def full_gradients(
    phases: Phases, names: Sequence[str], common: Params, stack: Params, held: Held
) -> Params:
    """Gradients of clients' mean losses by these parameters, without dropout; all clients are of
    one job."""
    objective, passes = phases.whole.objective, phases.passes
    phases.model.eval()
    size = phases.stack_size({n: common[n][None] for n in names})
    # Where samples weigh differently, a mean over parts is not that of all.
    most = passes.most if not phases.task.weighs else 1 << 62
    found: list[Params] = []
    for first, last in cut(0, len(held.sizes), size):
        own = {name: value[first:last] for name, value in stack.items()}
        at = {n: common[n].expand(last - first, *common[n].shape) for n in names}
        rest = {n: v for n, v in common.items() if n not in at}
        whole = torch.as_tensor(held.sizes[first:last, None], device=phases.device)
        total = {n: torch.zeros_like(v) for n, v in at.items()}
        keys = held.y.new_zeros(last - first, dtype=torch.int64)
        for index, present in columns(held, first, last, most, phases.device):
            weights = present.to(phases.precision.kept) / whole
            x = _side_by_side(phases, held, index)
            batch = Batch(x, held.y[index], weights, keys, present.any(1))
            _, grads, _ = objective.losses_and_gradient(at, {}, own, rest, batch)
            total = {n: total[n] + grads[n] for n in names}
        found.append(total)
    return {n: torch.cat([part[n] for part in found]) for n in names}


def _side_by_side(phases: Phases, held: Held, index: Tensor) -> Tree:
    x = phases.passes.inputs(held.x, index.flatten())
    return mapped(lambda tensor: tensor.reshape(*index.shape, *tensor.shape[1:]), x)


def columns(
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

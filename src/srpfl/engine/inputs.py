"""From stored samples to a model's inputs: chosen, moved as drawn, normalised."""

from __future__ import annotations

import torch
from torch import Tensor

from srpfl.core.devices import on_gpu
from srpfl.core.trees import Tree, take
from srpfl.data.base import Transform
from srpfl.engine import kernels
from srpfl.engine.precision import Precision


def inputs(
    transform: Transform,
    x: Tree,
    index: Tensor,
    augment: Tensor | None,
    precision: Precision,
) -> Tree:
    """The samples at ``index``, in one pass over memory where there is a kernel for it."""
    images = isinstance(x, Tensor) and on_gpu(x) and x.dtype == torch.uint8 and x.ndim == 4
    images = images and transform.scale
    if images and kernels.available() and precision.computed != torch.float64:
        mean, std = (
            torch.tensor(values, device=x.device).expand(x.shape[1]).contiguous()
            for values in (transform.mean, transform.std)
        )
        moves = None if augment is None else augment.contiguous()
        made = kernels.prepared(x, index, moves, transform.crop, mean, std, precision.computed)
        return made.permute(0, 3, 1, 2)
    chosen = take(x, index)
    if augment is not None:
        chosen = transform.augment(chosen, augment.long())
    made = transform.prepare(chosen, precision.kept)
    if isinstance(made, Tensor) and made.ndim == 4 and made.is_floating_point():
        # Convolutions are faster on images with their channels last, on CPUs too.
        return made.contiguous(memory_format=torch.channels_last)
    return made

"""Blocks whose inner results are not kept for the backward pass, but computed again in it.

PyTorch's own ``torch.utils.checkpoint`` computes a block again after the pass is over, when the
model has its own weights once more and not those that it was called with, and cannot be called
under ``torch.vmap``. Here a block takes its weights along, and a stack's blocks are computed again
as a stack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import checkpoint

from srpfl.core.backbone import RECOMPUTED, copied
from srpfl.core.split import Params
from srpfl.engine.dropout import KeyedDropout
from srpfl.engine.functions import Functions
from srpfl.engine.stacks import Stack, by_rule, is_stacked


class Recomputed(nn.Module):
    """Mixed into the class of a block; the caller of the model says for which pass."""

    functions: Functions | None = None

    def forward(self, *args: Any, **named: Any) -> Any:
        functions = self.functions
        if functions is None or not torch.is_grad_enabled():
            return super().forward(*args, **named)
        # Under all names: the keys of several dropout layers are one tensor in this pass only.
        state: Params = dict(self.named_parameters(remove_duplicate=False))
        state |= dict(self.named_buffers(remove_duplicate=False))
        given, form = tree_flatten((functions.key, state, args, named))
        places = [place for place, value in enumerate(given) if isinstance(value, Tensor)]
        drops = [module for module in self.modules() if isinstance(module, KeyedDropout)]
        begun, uses = functions.uses, [layer.uses for layer in drops]
        shape: Any = None

        def block(*tensors: Tensor) -> tuple[Tensor, ...]:
            """The same again, whenever it is called: with the same weights and dropout masks."""
            nonlocal shape
            values = list(given)
            for place, tensor in zip(places, tensors, strict=True):
                values[place] = tensor
            key, state, args, named = tree_unflatten(values, form)
            for layer, before in zip(drops, uses, strict=True):
                layer.uses = before
            now, self.functions = self.functions, None
            try:
                with Functions(key, begun) as own:
                    outputs = functional_call(self, state, args, named, tie_weights=False)
            finally:
                self.functions = now
            functions.uses = own.uses
            found, shape = tree_flatten(outputs)
            return tuple(found)

        found = _run(block, [given[place] for place in places])
        return tree_unflatten(found, shape)


def _run(block: Callable[..., tuple[Tensor, ...]], tensors: list[Tensor]) -> tuple[Tensor, ...]:
    def stacked(stack: Stack, *tensors: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        clients = torch.vmap(block, in_dims=stack.at)
        # A stack draws nothing from PyTorch's stream, which a graph that is captured cannot read.
        found = checkpoint(clients, *tensors, use_reentrant=False, preserve_rng_state=False)
        return found, (0,) * len(found)

    found: tuple[Tensor, ...]
    if is_stacked(*tensors):
        found = by_rule(stacked, *tensors)
    else:
        found = checkpoint(block, *tensors, use_reentrant=False)
    return found


def with_recomputed_blocks(model: nn.Module) -> nn.Module:
    """A copy of the model in which the blocks that are marked are computed again. Names stay."""
    model = copied(model)
    marked = [n for n, module in model.named_modules() if getattr(module, RECOMPUTED, False)]
    for place in marked:
        module = model.get_submodule(place)
        inside = any(place.startswith(f"{other}.") for other in marked)
        if not inside and not isinstance(module, Recomputed):
            kind = type(module)
            name = f"Recomputed{kind.__name__}"
            module.__class__ = type(name, (Recomputed, kind), {"__module__": __name__})
    return model

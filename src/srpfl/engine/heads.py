"""Where a model's head begins: everything before it is the same for all while heads train."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from srpfl.engine.layers import linear
from srpfl.engine.precision import Forward
from srpfl.split import Params


def head_module(model: nn.Module, own: Collection[str]) -> str | None:
    """The name of the one linear layer to which all these parameters belong, if there is one."""
    owners = {name.rpartition(".")[0] for name in own}
    if len(owners) != 1:
        return None
    (owner,) = owners
    return owner if owner and isinstance(model.get_submodule(owner), nn.Linear) else None


def without_head(model: nn.Module, head: str, probe: Tensor) -> nn.Module | None:
    """The model up to its head's inputs, or None where the head is not simply the last layer.

    Tried out on a few inputs, so it holds for models of any make: the head must be called once,
    and what it returns must be what the model returns.
    """
    calls: list[tuple[Tensor, Tensor]] = []

    def note(_module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        calls.append((inputs[0], output))

    layer = model.get_submodule(head)
    body = copy.deepcopy(model)
    body.set_submodule(head, nn.Identity())
    if _shared_elsewhere(model, layer):
        return None
    hook = layer.register_forward_hook(note)
    try:
        model.eval()
        body.eval()
        with torch.no_grad():
            outputs = model(probe)
            if len(calls) != 1 or calls[0][1] is not outputs or calls[0][0].ndim != 2:
                return None
            features = body(probe)
    finally:
        hook.remove()
    return body if torch.equal(features, calls[0][0]) else None


def head_forward(head: str) -> Forward:
    """The head alone, as a function of features."""

    def forward(params: Params, x: Tensor) -> Tensor:
        return linear(x, params[f"{head}.weight"], params.get(f"{head}.bias"))

    return forward


def _shared_elsewhere(model: nn.Module, layer: nn.Module) -> bool:
    """Whether the head's parameters are used under another name too (tied weights)."""
    own = {id(parameter) for parameter in layer.parameters()}
    every = [p for _, p in model.named_parameters(remove_duplicate=False) if id(p) in own]
    return len(every) != len(own)

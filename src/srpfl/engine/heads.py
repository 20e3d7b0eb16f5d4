"""Where a model's head begins: everything before it is the same for all while heads train."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from srpfl.engine import kernels
from srpfl.engine.base import cross_entropy
from srpfl.engine.layers import is_plain_linear, linear, shared_elsewhere
from srpfl.engine.precision import Forward, Precision
from srpfl.engine.steps import Batch, Carried
from srpfl.engine.task import Task
from srpfl.local import SGD
from srpfl.split import Params


def head_module(model: nn.Module, own: Collection[str]) -> str | None:
    """The name of the one linear layer to which all these parameters belong, if there is one."""
    owners = {name.rpartition(".")[0] for name in own}
    if len(owners) != 1:
        return None
    (owner,) = owners
    return owner if owner and is_plain_linear(model.get_submodule(owner)) else None


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
    if shared_elsewhere(model, layer):
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


def fits_kernel(task: Task, carried: Carried, batches: Batch, precision: Precision) -> bool:
    """Whether one kernel can take all steps of all heads: SGD on cross entropy, on a GPU."""
    head, rule = task.problem.head, task.rule
    if head is None or type(rule) is not SGD or task.problem.loss is not cross_entropy:
        return False
    if not (batches.x.is_cuda and kernels.available()) or precision.kept != torch.float32:
        return False
    whole = carried.params.keys() == {f"{head}.weight", f"{head}.bias"}
    return whole and kernels.heads_fit(*carried.params[f"{head}.weight"].shape[1:])


def train_heads(task: Task, carried: Carried, batches: Batch, precision: Precision) -> Tensor:
    """All steps of all heads at once, in place; the losses are summed over the steps."""
    rule, head = task.rule, task.problem.head
    assert isinstance(rule, SGD)
    names = f"{head}.weight", f"{head}.bias"
    weight, bias = (carried.params[name] for name in names)
    speeds = None
    if rule.momentum:
        speeds = carried.moments["momentum"][names[0]], carried.moments["momentum"][names[1]]
    losses = kernels.train_heads(
        batches.x.contiguous(),
        batches.y.contiguous(),
        batches.weights.contiguous(),
        batches.active.sum(0),
        weight,
        bias,
        speeds,
        (rule.lr, rule.momentum, rule.weight_decay),
        precision.computed == torch.bfloat16,
    )
    return losses[None]

"""Where a model's head begins: everything before it is the same for all while heads train."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from srpfl.core.backbone import copied
from srpfl.core.devices import on_gpu
from srpfl.core.rules import SGD
from srpfl.core.split import Params
from srpfl.core.trees import Tree, leaves
from srpfl.engine import head_kernel, kernels
from srpfl.engine.layers import is_plain_linear, linear, shared_elsewhere
from srpfl.engine.modes import set_modes
from srpfl.engine.precision import STEP, Forward, Precision, called
from srpfl.engine.step_kind import StepKind
from srpfl.engine.steps import Batch, Carried
from srpfl.task import Classification


def head_module(model: nn.Module, own: Collection[str]) -> str | None:
    """The name of the one linear layer to which all these parameters belong, if there is one."""
    owners = {name.rpartition(".")[0] for name in own}
    if len(owners) != 1:
        return None
    (owner,) = owners
    return owner if owner and is_plain_linear(model.get_submodule(owner)) else None


def without_head(
    model: nn.Module, head: str, probe: Tree, dtype: torch.dtype = torch.float32
) -> nn.Module | None:
    """The model up to its head's inputs, or None where the head is not simply the last layer.

    Tried out on a few samples, in training and in a test, so it holds for models of any make: the
    head must be called once, and what it returns must be what the model returns. ``dtype`` is that
    of the samples.
    """
    if shared_elsewhere(model, model.get_submodule(head)):
        return None
    body = copied(model).eval()
    body.set_submodule(head, nn.Identity())
    try:
        ends = all(_ends_with(model, body, head, probe, dtype, training=t) for t in (False, True))
    except Exception:  # whatever a model's own code asks of what its head returns
        return None
    return body if ends else None


def _ends_with(
    model: nn.Module, body: nn.Module, head: str, probe: Tree, dtype: torch.dtype, *, training: bool
) -> bool:
    """Whether the model returns what its head makes of what the body returns."""
    calls: list[tuple[Tensor, Tensor]] = []

    def note(_module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        calls.append((inputs[0], output))

    pair = copied(model).eval().to(dtype=dtype), copied(body).to(dtype=dtype)
    pair[0].get_submodule(head).register_forward_hook(note)
    key = {STEP: torch.zeros((), dtype=torch.int64, device=leaves(probe)[0].device)}
    with torch.no_grad():
        if training:
            for each in pair:
                set_modes(each, (), ())
        outputs, features = (called(each)(key, probe)[0] for each in pair)
    once = len(calls) == 1 and calls[0][1] is outputs and calls[0][0].ndim >= 2
    return once and torch.equal(features, calls[0][0])


def head_forward(head: str, precision: Precision) -> Forward:
    """The head alone, as a function of features."""

    def forward(params: Params, x: Tree) -> tuple[Tensor, Params]:
        names = f"{head}.weight", f"{head}.bias"
        weight, bias = (None if (v := params.get(n)) is None else v.to(low) for n in names)
        assert weight is not None
        return linear(x.to(low), weight, bias).to(precision.kept), {}

    low = precision.computed
    return forward


def fits_kernel(kind: StepKind, carried: Carried, batches: Batch, precision: Precision) -> bool:
    """Whether one kernel can take all steps of all heads: SGD on cross entropy, on a GPU."""
    head, rule = kind.objective.head, kind.rule
    if head is None or type(rule) is not SGD or type(kind.objective.task) is not Classification:
        return False
    if not (on_gpu(batches.x) and kernels.available()) or precision.kept != torch.float32:
        return False
    whole = carried.params.keys() == {f"{head}.weight", f"{head}.bias"}
    plain = batches.x.ndim == 4  # steps x clients x batch x features
    if not (whole and plain):
        return False
    classes, features = carried.params[f"{head}.weight"].shape[1:]
    return head_kernel.heads_fit(classes, features, batches.x.shape[2])


def train_heads(kind: StepKind, carried: Carried, batches: Batch, precision: Precision) -> Tensor:
    """All steps of all heads at once, in place; the losses are summed over the steps."""
    rule, head = kind.rule, kind.objective.head
    assert isinstance(rule, SGD)
    names = f"{head}.weight", f"{head}.bias"
    weight, bias = (carried.params[name] for name in names)
    speeds = None
    if rule.momentum:
        speeds = carried.moments["momentum"][names[0]], carried.moments["momentum"][names[1]]
    losses = head_kernel.train_heads(
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

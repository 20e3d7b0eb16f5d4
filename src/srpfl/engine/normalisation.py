"""What normalisation layers compute, for one client or for a stack of clients.

Channels are treated apart from each other, or in groups: a stack of clients is so many more
channels. PyTorch's own kernels then do it as if there were one client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from srpfl.engine.stacks import (
    Stack,
    apart,
    by_rule,
    clients_first,
    each_channel,
    folded,
    in_batch,
    in_channels,
    is_stacked,
)

Own = tuple[Tensor | None, Tensor | None]  # a layer's weight and bias


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """``nn.functional.group_norm`` with a rule for stacks."""
    if not is_stacked(x, weight, bias):
        return F.group_norm(x, num_groups, weight, bias, eps)
    outputs: Tensor = by_rule(_group_norm, x, weight, bias, num_groups, eps)
    return outputs


def _group_norm(
    stack: Stack, x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float
) -> tuple[Tensor, int]:
    clients, (x_at, weight_at, bias_at) = stack.clients, stack.at[:3]
    if weight_at is None and bias_at is None:
        batch, unfolded = in_batch(x.movedim(x_at, 0))
        return unfolded(F.group_norm(batch, groups, weight, bias, eps)), 0
    scale, shift = each_channel(weight, weight_at, clients), each_channel(bias, bias_at, clients)
    outputs = F.group_norm(in_channels(x, x_at, clients), clients * groups, scale, shift, eps)
    return apart(outputs, clients, 1), 1


def with_given(x: Tensor, own: Own, mean: Tensor, var: Tensor, eps: float) -> Tensor:
    def normalised(x: Tensor, *each: Tensor | None) -> Tensor:
        scale, shift, mean, var = _wide(x, *each)
        return F.batch_norm(x, mean, var, scale, shift, False, 0.0, eps)

    each = (*own, mean, var)
    if not is_stacked(*each):
        return folded(normalised, x, *each)
    return _by_channel(lambda x, _, *each: (normalised(x, *each),), x, None, *each)[0]


def with_batch(x: Tensor, own: Own, eps: float) -> tuple[Tensor, ...]:
    """Outputs, mean and variance, by PyTorch's own kernels: one pass over the data for all."""

    def normalised(x: Tensor, _: None, *each: Tensor | None) -> tuple[Tensor, ...]:
        scale, shift = _wide(x, *each)
        if scale is None and x.dtype.itemsize < 4:  # else the statistics come in low precision
            scale = torch.ones(x.shape[1], device=x.device)
        outputs, mean, scatter = torch.native_batch_norm(
            x, scale, shift, None, None, True, 0.0, eps
        )
        return outputs, mean, (scatter.pow(-2) - eps).clamp(min=0)  # it is 1 / √(var + eps)

    return _by_channel(normalised, x, None, *own)


def with_present(
    x: Tensor, own: Own, mean: Tensor | None, var: Tensor | None, present: Tensor, eps: float
) -> tuple[Tensor, ...]:
    """The same over the real samples. Where there are too few, the given statistics are used."""

    def normalised(x: Tensor, present: Tensor, *each: Tensor | None) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = _Masked.apply(x, present, *_wide(x, *each), eps)  # type: ignore[no-untyped-call]
        return found

    return _by_channel(normalised, x, present != 0, *own, mean, var)


def _wide(x: Tensor, *values: Tensor | None) -> tuple[Tensor | None, ...]:
    dtype = torch.promote_types(x.dtype, torch.float32)
    return tuple(None if value is None else value.to(dtype) for value in values)


def _by_channel(
    function: Callable[..., tuple[Tensor, ...]],
    x: Tensor,
    present: Tensor | None,
    *each: Tensor | None,
) -> tuple[Tensor, ...]:
    """A function that treats channels apart: a stack of clients is so many more channels. It takes
    and returns images first, then numbers for each channel."""
    if not is_stacked(x, present, *each):
        return function(x, None if present is None else present[:, None], *each)

    def rule(
        stack: Stack, x: Tensor, present: Tensor | None, *each: Tensor | None
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        clients, (x_at, present_at, *at) = stack
        images = in_channels(x, x_at, clients)
        if present is not None:
            real = clients_first(present, present_at, clients).t()
            present = real.repeat_interleave(images.shape[1] // clients, 1)
        values = (each_channel(v, place, clients) for v, place in zip(each, at, strict=True))
        outputs, *numbers = function(images, present, *values)
        split = [apart(number, clients, 0) for number in numbers]
        return (apart(outputs, clients, 1), *split), (1, *[0] * len(split))

    found: tuple[Tensor, ...] = by_rule(rule, x, present, *each)
    return found


class _Masked(torch.autograd.Function):
    """Normalise [samples, channels, ...] with the statistics of those present ([samples, 1] or
    [samples, channels]). Each sample's moments in one pass, put together afterwards, as stable as
    two passes; what is as large as the data is done by PyTorch's own kernels."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        present: Tensor,
        scale: Tensor | None,
        shift: Tensor | None,
        mean: Tensor | None,
        var: Tensor | None,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        means, variances = _moments(x)
        count = present.sum(0)
        some = count.clamp(min=1)
        none = torch.zeros_like(means)
        own_mean = torch.where(present, means, none).sum(0) / some
        spread = variances + (means - own_mean) ** 2
        own_var = torch.where(present, spread, none).sum(0) / some
        used, enough = (own_mean, own_var), None
        if mean is not None and var is not None:
            enough = count > 1
            used = torch.where(enough, own_mean, mean), torch.where(enough, own_var, var)
        outputs = F.batch_norm(x, *used, scale, shift, False, 0.0, eps)
        # Of the samples that made the statistics: how much each counted.
        part = present / (some * x.shape[2:].numel()).to(own_mean.dtype)
        if enough is not None:
            part = part * enough
        ctx.save_for_backward(x, scale, *used, part)
        ctx.eps, ctx.has_shift = eps, shift is not None
        ctx.mark_non_differentiable(own_mean, own_var)
        return outputs, own_mean, own_var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        x, scale, mean, var, part = ctx.saved_tensors
        inverse = (var + ctx.eps).rsqrt()
        # As if the statistics were given; the kernel's sums say what they answer for.
        towards_x, towards_scale, towards_shift = torch.ops.aten.native_batch_norm_backward(
            grads[0],
            x,
            torch.ones_like(mean) if scale is None else scale,
            mean,
            var,
            mean,
            inverse,  # on a GPU with channels last, these are asked for
            False,
            ctx.eps,
            [ctx.needs_input_grad[0], True, True],
        )
        if ctx.needs_input_grad[0]:
            factor = part * inverse if scale is None else part * inverse * scale
            slope = -factor * inverse * towards_scale
            level = -factor * towards_shift - slope * mean
            each = (*slope.shape, *[1] * (x.ndim - 2))
            by_statistics = torch.addcmul(level.reshape(each), x, slope.reshape(each))
            towards_x = (towards_x + by_statistics).to(x.dtype)
        return (
            towards_x if ctx.needs_input_grad[0] else None,
            None,
            towards_scale if scale is not None else None,
            towards_shift if ctx.has_shift else None,
            *[None] * 3,
        )


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each sample's channels, in float32 or better."""
    wide, places = torch.promote_types(x.dtype, torch.float32), list(range(2, x.ndim))
    if not places:
        return x.to(wide), torch.zeros_like(x, dtype=wide)
    if x.dtype == wide:
        variances, means = torch.var_mean(x, places, correction=0)
        return means, variances
    # PyTorch would round the moments of low numbers, or copy all of them.
    means = x.mean(places, dtype=wide)
    squares = torch.linalg.vector_norm(x, dim=places, dtype=wide) ** 2 / x.shape[2:].numel()
    return means, (squares - means**2).clamp(min=0)

"""Linear maps, convolutions and embeddings that know what a stack of clients is.

``torch.vmap`` turns a model into one for a stack of clients, whatever its layers. For those that
do nearly all the work its own rules are slow: gradients of linear weights come out transposed, and
convolutions lose their images' layout. Here they bring a rule of their own.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from srpfl.engine.stacks import Stack, by_rule, clients_first, in_batch, is_stacked

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``nn.functional.linear`` with a rule for stacks."""
    if x.ndim != 2 and not is_stacked(x, weight, bias):
        # As rows: a view made inside of a function of ours could not be written to in place.
        rows = x.reshape(-1, x.shape[-1])
        return linear(rows, weight, bias).reshape(*x.shape[:-1], weight.shape[0])
    if not torch.is_grad_enabled() and not is_stacked(x, weight, bias):
        return F.linear(x, weight, bias)  # the same, without what a function of ours costs
    outputs: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return outputs


def stacked_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """[clients, rows, in] with weights [clients, out, in]."""
    outputs: Tensor = _StackedLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return outputs


class _Linear(torch.autograd.Function):
    """One client, or parameters common to all: PyTorch's own; a stack: :class:`_StackedLinear`."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        # What goes into a frozen layer need not be kept.
        ctx.save_for_backward(inputs[0] if ctx.needs_input_grad[1] else None, inputs[1])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        (grad,) = grads
        return (
            grad @ weight if ctx.needs_input_grad[0] else None,
            grad.t() @ x if ctx.needs_input_grad[1] else None,
            grad.sum(0) if ctx.needs_input_grad[2] else None,
        )

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, int]:
        x_at, weight_at, bias_at = in_dims
        if weight_at is None and bias_at is None:
            assert x_at is not None
            return linear(x.movedim(x_at, 0), weight, bias), 0
        x, weight = (
            tensor.expand(info.batch_size, *tensor.shape) if at is None else tensor.movedim(at, 0)
            for tensor, at in ((x, x_at), (weight, weight_at))
        )
        if bias is not None:
            at = bias_at
            bias = bias.expand(info.batch_size, -1) if at is None else bias.movedim(at, 0)
        flat = x.flatten(1, -2) if x.ndim > 2 else x[:, None]
        return stacked_linear(flat, weight, bias).reshape(*x.shape[:-1], weight.shape[1]), 0


class _StackedLinear(torch.autograd.Function):
    """[clients, rows, in] times [clients, out, in]: gradients in the layout of the weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        if bias is None:
            return torch.bmm(x, weight.mT)
        return torch.baddbmm(bias[:, None], x, weight.mT)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        (grad,) = grads
        return (
            torch.bmm(grad, weight) if ctx.needs_input_grad[0] else None,
            torch.bmm(grad.mT, x) if ctx.needs_input_grad[1] else None,
            grad.sum(1) if ctx.needs_input_grad[2] else None,
        )


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """``nn.functional.conv1d``, ``conv2d`` or ``conv3d``, as the weights say."""
    how = (stride, padding, dilation, groups)
    if is_stacked(x, weight, bias):
        outputs: Tensor = by_rule(_convolution, x, weight, bias, how)
        return outputs
    return CONVOLUTIONS[weight.ndim - 2](x, weight, bias, *how)


def _convolution(
    stack: Stack, x: Tensor, weight: Tensor, bias: Tensor | None, how: Any
) -> tuple[Tensor, int]:
    """A stack of one is no stack, and parameters common to all need none: both are an ordinary
    convolution. Else PyTorch's own rule: clients are groups of channels."""
    x_at, weight_at, bias_at = stack.at[:3]
    if weight_at is None and bias_at is None:
        if x.ndim == weight.ndim:  # samples without a batch: clients take its place
            return convolution(x.movedim(x_at, 0), weight, bias, *how), 0
        batch, unfolded = in_batch(x.movedim(x_at, 0))
        return unfolded(convolution(batch, weight, bias, *how)), 0
    if stack.clients == 1:
        one, filters, shift = (
            tensor if at is None or tensor is None else tensor.select(at, 0)
            for tensor, at in ((x, x_at), (weight, weight_at), (bias, bias_at))
        )
        assert one is not None
        assert filters is not None
        return convolution(one, filters, shift, *how)[None], 0
    in_batches = x.ndim - (x_at is not None) == weight.ndim - (weight_at is not None)
    if weight_at is not None and in_batches and _is_pointwise(weight, weight_at, how):
        return _pointwise(stack, x, weight, bias, how)
    plain = CONVOLUTIONS[weight.ndim - (weight_at is not None) - 2]
    outputs: Tensor = torch.vmap(
        lambda x, weight, bias: plain(x, weight, bias, *how),
        in_dims=(x_at, weight_at, bias_at),
    )(x, weight, bias)
    return outputs, 0


def _is_pointwise(weight: Tensor, at: int, how: Any) -> bool:
    """Whether each place of an image is seen alone."""
    _, padding, _, groups = how
    sizes = weight.movedim(at, 0).shape[3:]
    bare = padding in (0, "valid") or (isinstance(padding, tuple) and not any(padding))
    return groups == 1 and set(sizes) == {1} and bare


def _pointwise(
    stack: Stack, x: Tensor, weight: Tensor, bias: Tensor | None, how: Any
) -> tuple[Tensor, int]:
    """Products of matrices, an image of every client at a time: on an H200 a MobileNet's round is
    1.5 times faster than with grouped convolutions. Images stay where they lie in memory."""
    x_at, weight_at, bias_at = stack.at[:3]
    filters = weight.movedim(weight_at, 0).flatten(2)  # clients x outputs x inputs
    images = clients_first(x, x_at, stack.clients).movedim(0, 1)
    images = _thinned(images, how[0])
    made = torch.stack([torch.bmm(filters, one.flatten(2)) for one in images.unbind(0)])
    outputs = made.reshape(*made.shape[:3], *images.shape[3:])
    if bias is not None:
        shift = clients_first(bias, bias_at, stack.clients)
        outputs = outputs + shift.reshape(*shift.shape, *[1] * (images.ndim - 3))
    return outputs, 1


def _thinned(x: Tensor, stride: Any) -> Tensor:
    """Only the places that a convolution with this stride looks at."""
    steps = stride if isinstance(stride, tuple) else (stride,) * (x.ndim - 3)
    places: Any = (..., *(slice(None, None, step) for step in steps))
    return x[places] if max(steps) > 1 else x


def embedding(
    ids: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """``nn.functional.embedding`` with a rule for stacks. PyTorch's own gives the rows of padding
    a gradient, but the first client's. ``max_norm`` writes into the weights: left alone."""
    how = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    if max_norm is not None or not is_stacked(weight):  # common weights are looked up as ever
        return F.embedding(ids, weight, *how)
    if scale_grad_by_freq:
        raise NotImplementedError("scale_grad_by_freq would count what fills up a batch")
    outputs: Tensor = by_rule(_embedding, ids, weight)
    if padding_idx is None:
        return outputs
    at = padding_idx % weight.shape[0]
    return torch.where((ids == at)[..., None], outputs.detach(), outputs)


def _embedding(stack: Stack, ids: Tensor, weight: Tensor) -> tuple[Tensor, int]:
    """One table of all clients' rows. An id beyond a client's own must not reach the next one's:
    it is sent beyond the end, where PyTorch refuses it."""
    table = clients_first(weight, stack.at[1], stack.clients)
    own = table.shape[1]
    ids = clients_first(ids, stack.at[0], stack.clients)
    first = torch.arange(stack.clients, device=ids.device) * own
    rows = ids + first.reshape(-1, *[1] * (ids.ndim - 1))
    rows = torch.where((ids >= 0) & (ids < own), rows, stack.clients * own)
    return F.embedding(rows, table.flatten(0, 1)), 0


def embedding_bag(
    ids: Tensor, weight: Tensor, padding_idx: int | None, mode: str, by_sample: Tensor | None
) -> Tensor:
    """The sum, mean or maximum of each row's embeddings, padding left out; an empty bag is 0."""
    each = embedding(ids, weight, padding_idx)
    if by_sample is not None:
        each = each * by_sample[..., None]
    counts = torch.ones_like(ids, dtype=torch.bool)
    if padding_idx is not None:
        counts = ids != padding_idx % weight.shape[0]
    some = counts.sum(1)[:, None]
    if mode == "max":
        low = torch.where(counts[..., None], each, torch.finfo(each.dtype).min)
        return torch.where(some > 0, low.amax(1), torch.zeros_like(low[:, 0]))
    total = torch.where(counts[..., None], each, torch.zeros_like(each)).sum(1)
    return total / some.clamp(min=1) if mode == "mean" else total

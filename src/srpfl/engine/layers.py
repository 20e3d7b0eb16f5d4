"""Linear layers and convolutions that know what a stack of clients is.

``torch.vmap`` turns a model into one for a stack of clients, whatever its layers. For the two
layers that do nearly all the work its own rules are slow: gradients of linear weights come out
transposed, and convolutions lose their images' layout. Here both bring a rule of their own.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def with_stackable_layers(model: nn.Module) -> nn.Module:
    """A copy of the model whose layers can be stacked cheaply. Names stay as they are."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = StackableLinear
        elif type(module) is nn.Conv2d and module.padding_mode == "zeros":
            module.__class__ = StackableConv2d
    return model


class StackableLinear(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


class StackableConv2d(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        outputs: Tensor = _Convolution.apply(  # type: ignore[no-untyped-call]
            input,
            self.weight,
            self.bias,
            (self.stride, self.padding, self.dilation, self.groups),
        )
        return outputs


def is_plain_linear(module: nn.Module) -> bool:
    """Whether the module does what a linear layer does and nothing else."""
    hooked = module._forward_hooks or module._forward_pre_hooks
    return type(module) in (nn.Linear, StackableLinear) and not hooked


def shared_elsewhere(model: nn.Module, layer: nn.Module) -> bool:
    """Whether a layer's parameters are used under another name too (tied weights)."""
    own = {id(parameter) for parameter in layer.parameters()}
    every = [p for _, p in model.named_parameters(remove_duplicate=False) if id(p) in own]
    return len(every) != len(own)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``nn.functional.linear`` with a rule for stacks."""
    outputs: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return outputs


class _Linear(torch.autograd.Function):
    """One client, or parameters common to all: PyTorch's own; a stack: :class:`_StackedLinear`."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], inputs[1])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        (grad,) = grads
        flat, inputs = grad.flatten(0, -2), x.flatten(0, -2)
        return (
            grad @ weight if ctx.needs_input_grad[0] else None,
            flat.t() @ inputs if ctx.needs_input_grad[1] else None,
            flat.sum(0) if ctx.needs_input_grad[2] else None,
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
        outputs: Tensor = _StackedLinear.apply(flat, weight, bias)  # type: ignore[no-untyped-call]
        return outputs.reshape(*x.shape[:-1], weight.shape[1]), 0


class _StackedLinear(torch.autograd.Function):
    """[clients, rows, in] times [clients, out, in]: gradients in the layout of the weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
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


class _Convolution(torch.autograd.Function):
    """A stack of one is no stack, and parameters common to all need none: both are an ordinary
    convolution. It is only ever differentiated under vmap, whose rule hands over to PyTorch."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, how: Any) -> Tensor:
        return F.conv2d(x, weight, bias, *how)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, ...],
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        how: Any,
    ) -> tuple[Tensor, int]:
        x_at, weight_at, bias_at = in_dims[:3]
        if weight_at is None and bias_at is None:
            x = x.movedim(x_at or 0, 0)
            folded = F.conv2d(x.flatten(0, 1), weight, bias, *how)
            return folded.reshape(*x.shape[:2], *folded.shape[1:]), 0
        if info.batch_size == 1:
            one, filters, shift = (
                tensor if at is None or tensor is None else tensor.select(at, 0)
                for tensor, at in ((x, x_at), (weight, weight_at), (bias, bias_at))
            )
            assert one is not None
            assert filters is not None
            return F.conv2d(one, filters, shift, *how)[None], 0
        outputs: Tensor = torch.vmap(
            lambda x, weight, bias: F.conv2d(x, weight, bias, *how),
            in_dims=(x_at, weight_at, bias_at),
        )(x, weight, bias)
        return outputs, 0

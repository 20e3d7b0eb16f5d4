"""Convolution, ReLU and 2x2 max-pooling as one layer on a GPU, for one model or a stack."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from srpfl.core.backbone import copied
from srpfl.engine import kernels
from srpfl.engine.layer_graph import fixed_graph, module_of
from srpfl.engine.layers import StackableConv2d

MOST_CHANNELS = 128  # of outputs: the gradient by the weights takes them in one tile
SMALL_WINDOW = 16  # up to which a filter row's window is laid out in advance


def with_fused_convolutions(model: nn.Module) -> nn.Module:
    """The model with each convolution that goes into ReLU and 2x2 max-pooling fused with them.

    Names of parameters stay. A model whose forward pass cannot be written down as a fixed list of
    layers, or that has nothing to fuse, is returned as it is.
    """
    model = copied(model)
    graph = fixed_graph(model) if kernels.available() else None
    if graph is None:
        return model
    uses = Counter(module_of(node, model) for node in graph.nodes)
    found: list[nn.Module] = []
    for conv in list(graph.nodes):
        # A layer that stands at several places may be fused at one of them only.
        if _is(conv, model, "conv") and uses[module_of(conv, model)] == 1:
            relu = _only_user(conv, model, "relu")
            pool = relu and _only_user(relu, model, "pool")
            if relu and pool:
                pool.replace_all_uses_with(conv)
                graph.erase_node(pool)
                graph.erase_node(relu)
                found.append(model.get_submodule(str(conv.target)))
    fused = fx.GraphModule(model, graph)
    # A graph leaves out what is never used, and knows tied weights by the first name that it meets.
    same = {n for n, _ in fused.named_parameters()} == {n for n, _ in model.named_parameters()}
    if not found or not same:
        return model
    for layer in found:
        layer.__class__ = ConvReluPool
    return fused


class ConvReluPool(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        outputs: Tensor = _ConvReluPool.apply(input, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return outputs


def plain(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.max_pool2d(F.relu(F.conv2d(x, weight, bias)), 2)


class _ConvReluPool(torch.autograd.Function):
    """Only ever differentiated under vmap, whose rule hands over to the stacked function."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return stacked(x[None], weight[None], bias[None])[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, weight: Tensor, bias: Tensor
    ) -> tuple[Tensor, int]:
        if in_dims[1] is None and in_dims[2] is None:
            x = x.movedim(in_dims[0] or 0, 0)
            outputs = stacked(x.flatten(0, 1)[None], weight[None], bias[None])
            return outputs.reshape(*x.shape[:2], *outputs.shape[2:]), 0
        x, weight, bias = (
            tensor.expand(info.batch_size, *tensor.shape) if at is None else tensor.movedim(at, 0)
            for tensor, at in zip((x, weight, bias), in_dims, strict=True)
        )
        return stacked(x, weight, bias), 0


def stacked(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """[clients, images, I, H, W] with weights [clients, O, I, KH, KW]."""
    if x.dtype not in (torch.float32, torch.bfloat16):
        outputs: Tensor = torch.vmap(plain)(x, weight, bias)
        return outputs
    fused: Tensor = _Stacked.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return fused


class _Stacked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        height, width = weight.shape[3:]
        images = x.permute(0, 1, 3, 4, 2).contiguous()
        filters = weight.permute(0, 3, 4, 2, 1).flatten(2, 3)  # clients, KH, KW·I, O
        spare = SMALL_WINDOW - filters.shape[2]
        if spare >= 0 and not ctx.needs_input_grad[0]:
            # Windows of a few numbers each start anywhere in memory: lay them out one by one.
            images, filters = kernels.windows(images, width, SMALL_WINDOW), _filled(filters, spare)
        filters = filters.flatten(1, 2).contiguous()
        notes = any(ctx.needs_input_grad)
        outputs, winners = kernels.forward(images, filters, bias.contiguous(), height, notes)
        ctx.save_for_backward(images, filters, winners)
        ctx.shape = weight.shape
        return outputs.permute(0, 1, 4, 2, 3)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        images, filters, winners = ctx.saved_tensors
        clients, o, i, height, width = ctx.shape
        grad = grads[0].permute(0, 1, 3, 4, 2).contiguous()
        towards_x = towards_weight = towards_bias = None
        if ctx.needs_input_grad[0]:
            towards_x = kernels.towards_inputs(grad, winners, filters, images.shape, height)
            towards_x = towards_x.permute(0, 1, 4, 2, 3)
        if ctx.needs_input_grad[1]:
            flat = kernels.towards_weights(grad, winners, images, filters.shape, height)
            rows = flat.reshape(clients, height, -1, o)[:, :, : width * i]
            rows = rows.reshape(clients, height, width, i, o).permute(0, 4, 3, 1, 2)
            towards_weight = rows.to(filters.dtype).contiguous()
        if ctx.needs_input_grad[2]:
            towards_bias = (grad * (winners < 4)).sum((1, 2, 3))
        return towards_x, towards_weight, towards_bias


def _filled(filters: Tensor, spare: int) -> Tensor:
    return F.pad(filters, (0, 0, 0, spare))


def _only_user(node: fx.Node, model: nn.Module, kind: str) -> fx.Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 and _is(users[0], model, kind) else None


def _is(node: fx.Node, model: nn.Module, kind: str) -> bool:
    module = module_of(node, model)
    if module is not None and (module._forward_hooks or module._forward_pre_hooks):
        return False
    if kind == "conv":
        return type(module) in (nn.Conv2d, StackableConv2d) and _simple(module)  # type: ignore[arg-type]
    if kind == "relu":
        relus = (F.relu, torch.relu)
        return isinstance(module, nn.ReLU) or node.target in relus or node.target == "relu"
    if isinstance(module, nn.MaxPool2d):
        plain = module.dilation in (1, (1, 1)) and not module.return_indices
        return plain and _halves(
            module.kernel_size, module.stride, module.padding, module.ceil_mode
        )
    if node.target not in (F.max_pool2d, torch.max_pool2d):
        return False
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
    given = dict(zip(names, node.args[1:], strict=False)) | node.kwargs
    if given.get("return_indices") or given.get("dilation", 1) not in (1, (1, 1), [1, 1]):
        return False
    size = given["kernel_size"]
    stride = given.get("stride") or size
    return _halves(size, stride, given.get("padding", 0), given.get("ceil_mode", False))


def _simple(conv: nn.Conv2d) -> bool:
    how = (conv.stride, conv.padding, conv.dilation, conv.groups)
    bare = how == ((1, 1), (0, 0), (1, 1), 1)
    return bare and conv.bias is not None and conv.out_channels <= MOST_CHANNELS


def _halves(size: Any, stride: Any, padding: Any, ceil: Any) -> bool:
    two, none = (2, (2, 2), [2, 2]), (0, (0, 0), [0, 0])
    return size in two and stride in two and padding in none and not ceil

"""PyTorch's layers, made fit for stacks of clients.

A layer changes its class in a copy of the model: names of parameters and buffers stay as they are,
and what it computes for one client, too. What a layer computes is in modules of its own; functions
that a model calls by itself are seen to by :mod:`srpfl.engine.functions`.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from srpfl.core.backbone import copied
from srpfl.engine.attention import made_attention
from srpfl.engine.normalisation import group_norm
from srpfl.engine.products import convolution, embedding, embedding_bag, linear
from srpfl.engine.recurrent import CELLS, made_recurrent
from srpfl.engine.stacks import is_stacked
from srpfl.engine.transformer import made_transformer

__all__ = ["is_plain_linear", "linear", "shared_elsewhere", "with_stackable_layers"]


class StackableLinear(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


class _StackableConvolution(nn.modules.conv._ConvNd):
    def forward(self, input: Tensor) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            around = self._reversed_padding_repeated_twice
            input, padding = F.pad(input, around, mode=self.padding_mode), (0,) * len(self.stride)
        return convolution(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )


class StackableConv1d(_StackableConvolution, nn.Conv1d):
    pass


class StackableConv2d(_StackableConvolution, nn.Conv2d):
    pass


class StackableConv3d(_StackableConvolution, nn.Conv3d):
    pass


class StackableEmbedding(nn.Embedding):
    def forward(self, input: Tensor) -> Tensor:
        return embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )


class StackableEmbeddingBag(nn.EmbeddingBag):
    """Bags of one length, as rows. Others (``offsets``) are left to PyTorch."""

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        rows = input.ndim == 2 and self.max_norm is None and not self.scale_grad_by_freq
        if not rows or not is_stacked(input, self.weight, per_sample_weights):
            return super().forward(input, offsets, per_sample_weights)
        return embedding_bag(input, self.weight, self.padding_idx, self.mode, per_sample_weights)


class StackableGroupNorm(nn.GroupNorm):
    def forward(self, input: Tensor) -> Tensor:
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


class _StackableInstanceNorm(nn.modules.instancenorm._InstanceNorm):
    """Without running statistics, each channel of a sample is a group."""

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        alone = input.dim() == self._get_no_batch_dim()  # type: ignore[no-untyped-call]
        x = input[None] if alone else input
        outputs = group_norm(x, x.shape[1], self.weight, self.bias, self.eps)
        return outputs[0] if alone else outputs


class StackableInstanceNorm1d(_StackableInstanceNorm, nn.InstanceNorm1d):
    pass


class StackableInstanceNorm2d(_StackableInstanceNorm, nn.InstanceNorm2d):
    pass


class StackableInstanceNorm3d(_StackableInstanceNorm, nn.InstanceNorm3d):
    pass


STACKABLE: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: StackableLinear,
    nn.Conv1d: StackableConv1d,
    nn.Conv2d: StackableConv2d,
    nn.Conv3d: StackableConv3d,
    nn.Embedding: StackableEmbedding,
    nn.EmbeddingBag: StackableEmbeddingBag,
    nn.GroupNorm: StackableGroupNorm,
    nn.InstanceNorm1d: StackableInstanceNorm1d,
    nn.InstanceNorm2d: StackableInstanceNorm2d,
    nn.InstanceNorm3d: StackableInstanceNorm3d,
    **CELLS,
}


def with_stackable_layers(model: nn.Module) -> nn.Module:
    """A copy of the model whose layers can be stacked cheaply. Names stay as they are."""
    model = copied(model)
    for module in model.modules():
        if isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats:
            continue  # falls back: its statistics are written in place
        if isinstance(module, nn.RNNBase):
            made_recurrent(module)
        elif type(module) in STACKABLE:
            module.__class__ = STACKABLE[type(module)]
        else:
            made_attention(module)
            made_transformer(module)
    return model


def is_plain_linear(module: nn.Module) -> bool:
    """Whether the module does what a linear layer does and nothing else."""
    hooked = module._forward_hooks or module._forward_pre_hooks
    return type(module) in (nn.Linear, StackableLinear) and not hooked


def shared_elsewhere(model: nn.Module, layer: nn.Module) -> bool:
    """Whether a layer's parameters are used under another name too (tied weights)."""
    own = {id(parameter) for parameter in layer.parameters()}
    every = [p for _, p in model.named_parameters(remove_duplicate=False) if id(p) in own]
    return len(every) != len(own)

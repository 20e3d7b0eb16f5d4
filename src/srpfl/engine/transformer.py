"""Transformers for stacks of clients.

Two habits of PyTorch's own know no stacks: the question whether a mask is causal, whose answer
depends on its values (without it the mask itself is used, and the numbers are the same), and
outside of training a "fast path" for layers and for samples of different lengths.
"""

from __future__ import annotations

from torch import Tensor, nn


class StackableEncoder(nn.TransformerEncoder):
    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        return super().forward(src, mask, src_key_padding_mask, bool(is_causal))


class StackableDecoder(nn.TransformerDecoder):
    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return super().forward(tgt, memory, *masks, bool(tgt_is_causal), memory_is_causal)


def made_transformer(module: nn.Module) -> None:
    """Make PyTorch's own modules ours."""
    if type(module) is nn.TransformerEncoderLayer:
        module.activation_relu_or_gelu = 0  # what the fast path asks for first
    elif type(module) is nn.TransformerEncoder:
        module.__class__ = StackableEncoder
        module.use_nested_tensor = False
    elif type(module) is nn.TransformerDecoder:
        module.__class__ = StackableDecoder

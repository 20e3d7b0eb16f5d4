"""Attention for one client or for a stack of clients, with masks of dropout from outside.

PyTorch's own layer drops units by a global stream, and outside of training takes a path of its own
(a "fast path") that knows no stacks. Here it is written with the same products and kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from srpfl.engine.products import linear
from srpfl.engine.stacks import Stack, by_rule, clients_first, is_stacked

Drop = Callable[[Tensor], Tensor]  # weights of attention to those that are left


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    drop: Drop | None = None,
) -> Tensor:
    """``nn.functional.scaled_dot_product_attention`` with a rule for stacks."""
    if drop is not None:
        return _dropping(query, key, value, attn_mask, is_causal, scale, enable_gqa, drop)
    how: dict[str, Any] = {"is_causal": is_causal, "scale": scale}
    if enable_gqa:
        how["enable_gqa"] = True
    if not is_stacked(query, key, value, attn_mask):
        return F.scaled_dot_product_attention(query, key, value, attn_mask, **how)
    outputs: Tensor = by_rule(_attention, query, key, value, attn_mask, how)
    return outputs


def _attention(
    stack: Stack, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, how: Any
) -> tuple[Tensor, int]:
    """PyTorch's kernels take [batch, heads, length, width]: clients go into the batch."""
    three = zip((query, key, value), stack.at[:3], strict=True)
    query, key, value = (clients_first(tensor, at, stack.clients) for tensor, at in three)
    if mask is not None and stack.at[3] is not None:
        mask = mask.movedim(stack.at[3], 0)
        mask = mask.reshape(stack.clients, *[1] * (query.ndim - mask.ndim), *mask.shape[1:])
    if query.ndim != 5:
        return F.scaled_dot_product_attention(query, key, value, mask, **how), 0
    if mask is not None and mask.ndim > 3 and mask.shape[-4] * len(mask) > 1:
        mask = mask.expand(*query.shape[:2], *mask.shape[-3:]).flatten(0, 1)
    elif mask is not None and mask.ndim == 5:
        mask = mask[0]
    q, k, v = (tensor.flatten(0, 1) for tensor in (query, key, value))
    outputs = F.scaled_dot_product_attention(q, k, v, mask, **how)
    return outputs.reshape(*query.shape[:2], *outputs.shape[1:]), 0


def _dropping(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    drop: Drop,
) -> Tensor:
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (tensor.repeat_interleave(groups, -3) for tensor in (key, value))
    scores = (query * _scale(query, scale)) @ key.mT
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if mask is None:
        return drop(torch.softmax(scores, -1)) @ value
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~mask, -math.inf)
    # Who may look at nothing gets zeros, as from PyTorch's kernels, not NaN.
    some = (mask > -math.inf).any(-1, keepdim=True)
    weights = torch.softmax(scores + torch.where(some, mask, torch.zeros_like(mask)), -1)
    return drop(torch.where(some, weights, torch.zeros_like(weights))) @ value


def _scale(query: Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


@dataclass(frozen=True)
class Heads:
    """The parameters of an ``nn.MultiheadAttention``."""

    count: int
    packed: Tensor | None  # projections of queries, keys and values in one, or
    parted: tuple[Any, ...]  # each by itself
    bias: Tensor | None
    bias_k: Tensor | None
    bias_v: Tensor | None
    add_zero: bool
    out: Tensor
    out_bias: Tensor | None


def multi_head_attention(
    heads: Heads,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    batch_first: bool,
    key_padding_mask: Tensor | None,
    need_weights: bool,
    attn_mask: Tensor | None,
    average_attn_weights: bool,
    is_causal: bool,
    drop: Drop | None,
) -> tuple[Tensor, Tensor | None]:
    """``nn.MultiheadAttention`` as a function."""
    alone = query.ndim == 2
    if alone and key_padding_mask is not None:
        key_padding_mask = key_padding_mask[None]
    # The same tensors stay the same, so that they are projected in one product.
    given = {id(x): x[None] if alone else x for x in (query, key, value)}
    if not alone and not batch_first:
        given = {name: x.transpose(0, 1) for name, x in given.items()}
    q, k, v = (given[id(x)] for x in (query, key, value))
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    # As in PyTorch: without other masks the hint says it all.
    is_causal = is_causal and key_padding_mask is None and not need_weights
    mask = None if is_causal else _merged(attn_mask, key_padding_mask, q, heads.count)
    outputs, weights = _attended(heads, q, k, v, mask, is_causal, need_weights, drop)
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    if alone:
        return outputs[0], None if weights is None else weights[0]
    return outputs if batch_first else outputs.transpose(0, 1), weights


def _attended(
    heads: Heads,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    need_weights: bool,
    drop: Drop | None,
) -> tuple[Tensor, Tensor | None]:
    """Batch first; the mask is added to the scores."""
    q, k, v = _projected(heads, query, key, value)
    if heads.bias_k is not None and heads.bias_v is not None:
        k = torch.cat([k, heads.bias_k.expand(len(k), 1, -1)], 1)
        v = torch.cat([v, heads.bias_v.expand(len(v), 1, -1)], 1)
    if heads.add_zero:
        k, v = (F.pad(tensor, (0, 0, 0, 1)) for tensor in (k, v))
    if mask is not None:
        mask = F.pad(mask, (0, k.shape[1] - key.shape[1]))
    q, k, v = (
        tensor.reshape(*tensor.shape[:2], heads.count, -1).transpose(1, 2) for tensor in (q, k, v)
    )
    weights = None
    if need_weights:
        scores = (q * _scale(q, None)) @ k.mT
        weights = torch.softmax(scores if mask is None else scores + mask, -1)
        weights = weights if drop is None else drop(weights)
        each = weights @ v
    else:
        each = scaled_dot_product_attention(q, k, v, mask, is_causal, drop=drop)
    return linear(each.transpose(1, 2).flatten(2), heads.out, heads.out_bias), weights


def _projected(
    heads: Heads, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, in one product where they come from the same."""
    bias, parted = heads.bias, heads.parted
    if heads.packed is not None:
        width = query.shape[-1]
        if query is key and key is value:
            q, k, v = linear(query, heads.packed, bias).chunk(3, -1)
            return q, k, v
        if key is value:
            shift, others = (None, None) if bias is None else (bias[:width], bias[width:])
            k, v = linear(key, heads.packed[width:], others).chunk(2, -1)
            return linear(query, heads.packed[:width], shift), k, v
        parted = heads.packed.chunk(3)
    shifts = (None, None, None) if bias is None else bias.chunk(3)
    q, k, v = map(linear, (query, key, value), parted, shifts)
    return q, k, v


class StackableAttention(nn.MultiheadAttention):
    """``keyed``, where there is one, drops weights of attention."""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        heads = Heads(
            self.num_heads,
            self.in_proj_weight,
            (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight),
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.out_proj.weight,
            self.out_proj.bias,
        )
        return multi_head_attention(
            heads,
            query,
            key,
            value,
            batch_first=self.batch_first,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
            drop=self._drop() if self.training and self.dropout > 0 else None,
        )

    def _drop(self) -> Drop:
        keyed: Drop | None = getattr(self, "keyed", None)
        return keyed or (lambda weights: F.dropout(weights, self.dropout))


def _merged(
    mask: Tensor | None, padding: Tensor | None, query: Tensor, heads: int
) -> Tensor | None:
    """Both masks as numbers to add to the scores."""
    mask, padding = (_additive(some, query.dtype) for some in (mask, padding))
    if mask is not None and mask.ndim == 3:
        mask = mask.reshape(len(query), heads, *mask.shape[1:])
    if padding is None:
        return mask
    padding = padding[:, None, None]
    return padding if mask is None else mask + padding


def _additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if mask is None or mask.is_floating_point():
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)


def made_attention(module: nn.Module) -> bool:
    """Make PyTorch's own layer one of ours; whether it is one now."""
    if type(module) is nn.MultiheadAttention:
        module.__class__ = StackableAttention
    return isinstance(module, StackableAttention)

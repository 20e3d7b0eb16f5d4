"""PyTorch's functions as a model's own code calls them, made fit for stacks of clients.

A model may call ``F.dropout(x)`` or ``x.view(len(x), -1)`` by itself: there is no layer to change.
The caller of the model calls it inside of a :class:`Functions`, under ``torch.vmap`` or not::

    with Functions(key) as functions:
        outputs = functional_call(model, params, (x,))

``key`` is that of the step's dropout masks (a scalar int64 tensor, under vmap one for each client:
the one that is given to layers under their ``key_names``). Make a new one for each pass: the n-th
call of a dropout in a pass has the n-th masks of the key. ``functions.uses`` says how often it was
used: a model that uses it is not the same function twice, though it has no dropout layer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from srpfl.engine.attention import Drop, Heads, multi_head_attention, scaled_dot_product_attention
from srpfl.engine.dropout import USE, dropped, dropped_as_one
from srpfl.engine.normalisation import group_norm
from srpfl.engine.products import convolution, embedding, linear
from srpfl.engine.stacks import is_stacked

# What drops units, and the dimensions of what it drops as one.
DROPOUTS: dict[Any, int | None] = {
    F.dropout: None,
    torch.dropout: None,
    F.dropout1d: 1,
    F.dropout2d: 2,
    F.dropout3d: 3,
}
# With a rule for stacks that PyTorch lacks, or that is quicker.
RULES: dict[Any, Callable[..., Any]] = {
    F.linear: linear,
    F.conv1d: convolution,
    F.conv2d: convolution,
    F.conv3d: convolution,
    F.embedding: embedding,
    F.group_norm: group_norm,
}
REQUIRES_GRAD = Tensor.requires_grad.__get__  # type: ignore[attr-defined]
ATTENTION = inspect.signature(F.multi_head_attention_forward)


class Functions(TorchFunctionMode):
    """What one client's pass calls; with no key, dropout is PyTorch's own.

    As long as any such mode is on, PyTorch's attention takes no "fast path" outside of training,
    which would know neither stacks nor this mode.
    """

    def __init__(self, key: Tensor | None = None, uses: int = 0) -> None:
        super().__init__()
        self.key, self.uses = key, uses

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.view and not kwargs and not isinstance(args[1], torch.dtype):
            # Images may lie in memory with their channels last; models are written for first.
            return Tensor.reshape(*args)
        if func is Tensor.view_as:
            return Tensor.reshape_as(*args, **kwargs)
        if func == REQUIRES_GRAD and is_stacked(args[0]):  # a stack of clients says no
            return torch._C._functorch.get_unwrapped(args[0]).requires_grad
        if func is Tensor.register_hook and is_stacked(args[0]):
            raise NotImplementedError("a hook on a gradient would not be called")
        if func in DROPOUTS and self.key is not None:
            return self._dropout(DROPOUTS[func], *args, **kwargs)
        if func is F.scaled_dot_product_attention:
            return self._attention(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            return self._multi_head(*args, **kwargs)
        if func in RULES and is_stacked(*args, *kwargs.values()):
            return RULES[func](*args, **kwargs)
        return func(*args, **kwargs)

    def _dropout(
        self,
        channels_of: int | None,
        input: Tensor,
        p: float = 0.5,
        training: bool | None = None,
        inplace: bool = False,
        *,
        train: bool = True,
    ) -> Tensor:
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        if p == 0 or not (train if training is None else training):
            return input
        outputs = self._drop(input, p, channels_of)
        return input.copy_(outputs) if inplace else outputs

    def _drop(self, x: Tensor, p: float, channels_of: int | None = None) -> Tensor:
        assert self.key is not None
        place = USE - 1 + USE * self.uses  # no layer's
        self.uses += 1
        return dropped(x, p, self.key, place, dropped_as_one(x, channels_of))

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        three, how = (query, key, value), (is_causal, scale, enable_gqa)
        if dropout_p > 0 and self.key is None:
            same: dict[str, Any] = {"scale": scale, "enable_gqa": enable_gqa}
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask, dropout_p, is_causal, **same
            )
        return scaled_dot_product_attention(*three, attn_mask, *how, self._dropper(dropout_p))

    def _dropper(self, p: float) -> Drop | None:
        return None if p == 0 else lambda x: self._drop(x, p)

    def _multi_head(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        """For those who call the function, or have a class of their own for the layer."""
        bound = ATTENTION.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        p = given["dropout_p"] if given["training"] else 0.0
        ours = is_stacked(*given.values()) if p == 0 else self.key is not None
        if not ours or given["static_k"] is not None:
            outputs: tuple[Tensor, Tensor | None] = F.multi_head_attention_forward(*args, **kwargs)
            return outputs
        heads = Heads(
            count=given["num_heads"],
            packed=None if given["use_separate_proj_weight"] else given["in_proj_weight"],
            parted=tuple(given[f"{name}_proj_weight"] for name in "qkv"),
            bias=given["in_proj_bias"],
            bias_k=given["bias_k"],
            bias_v=given["bias_v"],
            add_zero=given["add_zero_attn"],
            out=given["out_proj_weight"],
            out_bias=given["out_proj_bias"],
        )
        same = ("key_padding_mask", "need_weights", "attn_mask", "average_attn_weights")
        return multi_head_attention(
            heads,
            *(given[name] for name in ("query", "key", "value")),
            batch_first=False,
            is_causal=given["is_causal"],
            drop=self._dropper(p),
            **{name: given[name] for name in same},
        )

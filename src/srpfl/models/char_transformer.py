"""A small transformer that reads text character by character."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from srpfl.errors import ConfigError


class CharTransformer(nn.Module):
    """Embeddings of characters and places, causal attention, and a linear ``head`` at every
    character for the next one. Texts may be shorter than ``length``, not longer.

    >>> CharTransformer(74)(torch.zeros(2, 64, dtype=torch.long)).shape
    torch.Size([2, 64, 74])
    """

    def __init__(
        self,
        tokens: int,
        *,
        width: int = 128,
        layers: int = 2,
        heads: int = 4,
        length: int = 64,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ConfigError(f"a width of {width} cannot be divided among {heads} heads")
        self.embed = nn.Embedding(tokens, width)
        self.place = nn.Parameter(torch.empty(length, width))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.place, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(self.embed(x) + self.place[: x.shape[-1]])
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


class Block(nn.Module):
    """Attention to what came before, then two linear layers; each is added to its input, which is
    normalised first."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        split = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = split.permute(2, 0, 3, 1, 4)  # each: samples, heads, places, width of a head
        # Written out: PyTorch's own attention has no stacked form, and 64 places need no other.
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        seen = scores.masked_fill(later, -torch.inf).softmax(dim=-1) @ v
        x = x + self.dropout(self.out(seen.transpose(1, 2).flatten(2)))
        more: Tensor = self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))
        return x + more

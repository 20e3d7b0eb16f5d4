"""A BERT classifier of MiniLM's size in plain PyTorch, for machines without transformers.

Layers have the names that they have in transformers: weights of `all-MiniLM-L6-v2` can be read from
its `model.safetensors`. Time and memory do not depend on the values, so random ones do as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn


class Size(NamedTuple):
    words: int = 30_522
    places: int = 512
    layers: int = 6
    width: int = 384
    heads: int = 12
    inner: int = 1536


class Embeddings(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(size.words, size.width, padding_idx=0)
        self.position_embeddings = nn.Embedding(size.places, size.width)
        self.token_type_embeddings = nn.Embedding(2, size.width)
        self.LayerNorm = nn.LayerNorm(size.width, eps=1e-12)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        kinds = self.token_type_embeddings(torch.zeros_like(ids))
        found: Tensor = self.word_embeddings(ids) + self.position_embeddings(places) + kinds
        return self.LayerNorm(found)


class SelfAttention(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.query, self.key, self.value = (nn.Linear(size.width, size.width) for _ in range(3))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        def parted(y: Tensor) -> Tensor:
            return y.reshape(*y.shape[:2], self.heads, -1).transpose(1, 2)

        q, k, v = (parted(layer(x)) for layer in (self.query, self.key, self.value))
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return seen.transpose(1, 2).flatten(2)


class Added(nn.Module):
    """A linear layer whose outputs are added to what was there before."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.dense, self.LayerNorm = nn.Linear(inputs, outputs), nn.LayerNorm(outputs, eps=1e-12)

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        outputs: Tensor = self.LayerNorm(self.dense(x) + before)
        return outputs


class Dense(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, outputs)


class Layer(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.attention = nn.ModuleDict(
            {"self": SelfAttention(size), "output": Added(size.width, size.width)}
        )
        self.intermediate = Dense(size.width, size.inner)
        self.output = Added(size.inner, size.width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention["output"](self.attention["self"](x, mask), x)
        outputs: Tensor = self.output(F.gelu(self.intermediate.dense(x)), x)
        return outputs


class Bert(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embeddings = Embeddings(size)
        self.encoder = nn.ModuleDict(
            {"layer": nn.ModuleList(Layer(size) for _ in range(size.layers))}
        )
        self.pooler = Dense(size.width, size.width)


class MiniLM(nn.Module):
    """Takes ids and masks by name, as a classifier of transformers does."""

    def __init__(self, classes: int, size: Size | None = None) -> None:
        super().__init__()
        size = size or Size()
        self.bert = Bert(size)
        self.classifier = nn.Linear(size.width, classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.bert.embeddings(input_ids)
        mask = (attention_mask != 0)[:, None, None]
        for layer in self.bert.encoder["layer"]:
            x = layer(x, mask)
        outputs: Tensor = self.classifier(torch.tanh(self.bert.pooler.dense(x[:, 0])))
        return outputs


def minilm(classes: int, weights: Path | None = None) -> nn.Module:
    """With the weights of a file, or random ones."""
    torch.manual_seed(0)
    made = MiniLM(classes)
    if weights is not None:
        found = {f"bert.{name.removeprefix('bert.')}": v for name, v in load_file(weights).items()}
        missing = made.load_state_dict(found, strict=False).missing_keys
        if any(name.startswith("bert.") for name in missing):
            raise SystemExit(f"{weights} lacks {missing[0]}: it is no MiniLM")
    return made

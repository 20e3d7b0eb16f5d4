"""Models and data that nobody tuned for: text, numbers, several inputs, normalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from srpfl.data.base import Pooled, Samples, Transform

TOKENS, LENGTH = 11, 6
AS_THEY_ARE = Transform(scale=False)


def pooled(
    sizes: Sequence[int],
    x: Callable[[np.random.Generator, int], Any],
    y: Callable[[np.random.Generator, int], Any],
    classes: int = 0,
) -> Pooled:
    rng = np.random.default_rng(0)

    def pool(counts: Sequence[int]) -> tuple[Samples, list[np.ndarray]]:
        total = sum(counts)
        parts = np.split(rng.permutation(total), np.cumsum(counts)[:-1])
        return Samples(x(rng, total), y(rng, total)), parts

    train, train_parts = pool(sizes)
    test, test_parts = pool([size // 2 + 1 for size in sizes])
    return Pooled("zoo", train, test, train_parts, test_parts, classes, AS_THEY_ARE)


def tokens(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.integers(0, TOKENS, size=(count, LENGTH))


def next_tokens(rng: np.random.Generator, count: int) -> np.ndarray:
    y = tokens(rng, count)
    y[rng.random(y.shape) < 0.2] = -100
    y[:, 0] = 1  # everyone has something to predict
    return y


def text(sizes: Sequence[int]) -> Pooled:
    return pooled(sizes, tokens, next_tokens)


def byte_text(sizes: Sequence[int]) -> Pooled:
    """Tokens as bytes, which are no images."""
    return pooled(sizes, lambda rng, count: tokens(rng, count).astype(np.uint8), next_tokens)


def numbers(sizes: Sequence[int]) -> Pooled:
    def y(rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.normal(size=count)  # double precision, as pandas has it

    return pooled(sizes, lambda rng, count: rng.normal(size=(count, 5)).astype(np.float32), y)


def labels(sizes: Sequence[int]) -> Pooled:
    def y(rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.integers(0, 2, size=(count, 3))

    return pooled(sizes, lambda rng, count: rng.normal(size=(count, 5)), y)


def masked_text(sizes: Sequence[int]) -> Pooled:
    """Inputs by the names of the model's arguments."""

    def x(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
        mask = rng.random((count, LENGTH)) < 0.7
        mask[:, 0] = True
        return {"ids": tokens(rng, count), "mask": mask}

    return pooled(sizes, x, lambda rng, count: rng.integers(0, 4, size=count), classes=4)


def pairs(sizes: Sequence[int]) -> Pooled:
    """Two inputs in a row: a token and numbers."""

    def x(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.integers(0, TOKENS, size=count), rng.normal(size=(count, 5)).astype(np.float32)

    return pooled(sizes, x, lambda rng, count: rng.integers(0, 4, size=count), classes=4)


def seeded(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def model() -> nn.Module:
        torch.manual_seed(1)
        return make()

    return model


class Normed(nn.Module):
    """Convolutions with normalisation: strided, grouped, and one by one."""

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 4, 3, stride=2, bias=False), norm(4), nn.ReLU()),
            *(nn.Conv2d(4, 4, 3, groups=4, padding=1), norm(4), nn.ReLU(inplace=True)),
            *(nn.Conv2d(4, 6, 1), norm(6), nn.ReLU()),
        )
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x).mean((2, 3)))
        return logits


class Tutorial(nn.Module):
    """As in PyTorch's own tutorial, for smaller images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.pool, self.conv2 = (
            nn.Conv2d(3, 6, 3),
            nn.MaxPool2d(2, 2),
            nn.Conv2d(6, 8, 3),
        )
        self.fc1, self.fc3 = nn.Linear(32, 12), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.view(-1, 32)
        logits: Tensor = self.fc3(F.dropout(F.relu(self.fc1(x)), 0.2, self.training))
        return logits


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, 4, padding_idx=0)
        self.cell = kind(4, 5, num_layers=2, batch_first=True, dropout=0.3, bidirectional=True)
        self.head = nn.Linear(10, TOKENS)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.cell(self.embed(x))[0])
        return logits


class Attending(nn.Module):
    """PyTorch's own encoder, with a mask, and the embedding tied to the output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, TOKENS)

    def forward(self, x: Tensor) -> Tensor:
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        logits: Tensor = self.head(self.norm(self.encoder(self.embed(x), mask=later)))
        return logits


class Tied(nn.Module):
    """The output layer is the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix = nn.Embedding(TOKENS, 6), nn.Linear(6, 6)
        self.out = nn.Linear(6, TOKENS, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(self.mix(self.embed(x)).tanh())
        return logits


class Masked(nn.Module):
    """Takes its inputs by name; the first embedding is fixed."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(TOKENS, 6), nn.Linear(6, 6), nn.Linear(6, 4)
        self.embed.requires_grad_(False)

    def forward(self, *, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.mix(self.embed(ids)).relu() * mask[..., None]
        logits: Tensor = self.head(hidden.sum(1) / mask.sum(1, keepdim=True))
        return logits


class Both(nn.Module):
    """Takes two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(TOKENS, 5), nn.Linear(5, 5), nn.Linear(5, 4)

    def forward(self, ids: Tensor, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.tanh(self.mix(x) + self.embed(ids)))
        return logits


class Twice(nn.Module):
    """One layer under two names, and another that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(5, 5), nn.LayerNorm(5), nn.Linear(5, 1)
        self.again = self.first

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.norm(self.again(self.norm(self.first(x)).relu())))
        return outputs


class InTraining(nn.Module):
    """Computes something else in training, with a tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(5, 6), nn.Linear(6, 1)
        self.scales = torch.linspace(0.5, 2, 6)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x)) * self.scales.to(x.dtype)
        outputs: Tensor = self.head(1.5 * hidden if self.training else hidden)
        return outputs


class Awkward(nn.Module):
    """Does what a CUDA graph cannot hold."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.first, self.head, self.how = nn.Linear(5, 6), nn.Linear(6, 1), how

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x))
        if self.how == "numbers":
            hidden = hidden * hidden.new_tensor([1.0, 2.0] * 3)
        elif self.how == "sent":
            hidden = hidden * torch.linspace(0.5, 2, 6).to(x.device, x.dtype)
        elif self.how == "mask":
            even = torch.arange(6, device=x.device) % 2 == 0
            hidden = torch.cat([hidden[:, even], hidden[:, ~even]], 1)
        outputs: Tensor = self.head(hidden)
        return outputs


AWKWARD = {
    "numbers": "sends Python's numbers to the GPU",
    "sent": "copies between the host and the GPU",
    "mask": "makes a tensor whose size depends on values",
}

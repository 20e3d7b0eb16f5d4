"""The work that is compared: the same clients, model and steps for everyone."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch
from torch import nn

from srpfl.algorithms import FedAvg
from srpfl.bench import SETTINGS, BenchCase
from srpfl.core.rules import SGD

LR, BATCH = 0.01, 10
Rounds = tuple[list[float], float, dict[str, torch.Tensor]]  # seconds each, start-up, the model


def setting_of(name: str) -> BenchCase:
    rule = SGD(lr=LR, weight_decay=0.0)
    return replace(SETTINGS[name], algorithm=FedAvg(epochs=1, rule=rule, batch_size=BATCH))


@cache
def samples_of(name: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """All clients' samples, ready for a model."""
    data = setting_of(name).data()
    every = (data.train(client) for client in range(data.clients))
    return [(data.transform.prepare(torch.from_numpy(x)), torch.from_numpy(y)) for x, y in every]


def initial(name: str) -> nn.Module:
    torch.manual_seed(0)
    return setting_of(name).model()

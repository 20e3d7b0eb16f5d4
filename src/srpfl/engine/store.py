"""Clients' samples as tensors on the device, kept for the next round as far as a budget allows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from srpfl.core.devices import on_gpu
from srpfl.core.trees import Tree, gathered, leaves, mapped
from srpfl.data.base import Federated, IntArray, Samples

Part = Literal["train", "test"]
Pair = tuple[Tree, Tensor]  # inputs and labels


class Held(NamedTuple):
    """The samples of several clients, one client after another."""

    x: Tree
    y: Tensor
    sizes: IntArray

    @property
    def starts(self) -> IntArray:
        return np.cumsum(self.sizes) - self.sizes


class Store:
    """Asks the data for a client once, unless so many others came since that it was dropped."""

    def __init__(self, data: Federated, device: torch.device, budget: int | None = None) -> None:
        self.data, self.device = data, device
        self.budget = default_budget(device) if budget is None else budget
        self.used = 0
        self._kept: OrderedDict[tuple[Part, int], Pair] = OrderedDict()

    def get(self, part: Part, client: int) -> Pair:
        key = (part, client)
        found = self._kept.get(key)
        if found is None:
            samples = self.data.train(client) if part == "train" else self.data.test(client)
            found = tensors(samples, self.device)
            self._kept[key] = found
            self.used += _bytes(found)
            while self.used > self.budget and len(self._kept) > 1:
                self.used -= _bytes(self._kept.popitem(last=False)[1])
        self._kept.move_to_end(key)
        return found

    def hold(self, part: Part, clients: Sequence[int]) -> Held:
        pairs = [self.get(part, client) for client in clients]
        x, y = gathered(torch.cat, pairs)
        return Held(x, y, np.array([len(y) for _, y in pairs], dtype=np.int64))


def tensors(samples: Samples, device: torch.device) -> Pair:
    """Samples on the device. Types stay as they are, but for the whole numbers of labels, which
    PyTorch's losses want long."""
    x, y = mapped(lambda array: _tensor(array, device), tuple(samples))
    return x, y if y.is_floating_point() else y.long()


def _tensor(array: Any, device: torch.device) -> Tensor:
    # PyTorch warns of arrays that it may not write to, such as memory-mapped ones.
    return torch.from_numpy(array if array.flags.writeable else array.copy()).to(device)


def default_budget(device: torch.device) -> int:
    if on_gpu(device):
        return int(torch.cuda.get_device_properties(device).total_memory) // 4
    return 1 << 29


def _bytes(pair: Pair) -> int:
    return sum([tensor.nbytes for tensor in leaves(pair)])

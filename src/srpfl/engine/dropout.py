"""Dropout whose masks are a function of a key, so that every engine drops the same units.

PyTorch's own masks come from a global stream: they depend on the order of clients and cannot be
the same for one client alone and for a stack of clients. Here the mask of a unit is a hash of
(key, layer, position); the key travels like a buffer, one per client and step.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

KEY = "dropout_key"
USE = 1 << 32  # no model has so many layers
BY_CHANNEL = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class KeyedDropout(nn.Module):
    """nn.Dropout, with masks from a key; or the kinds that drop whole channels.

    One layer may be used at several places of a model: each use in a pass has masks of its own.
    """

    dropout_key: Tensor

    def __init__(self, p: float, layer: int, *, by_channel: bool = False) -> None:
        super().__init__()
        self.p, self.layer, self.by_channel = p, layer, by_channel
        self.uses = 0  # in this pass; whoever calls the model sets it back
        self.register_buffer(KEY, torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        place = self.layer + USE * self.uses
        self.uses += 1
        shape = (*x.shape[:2], *[1] * (x.ndim - 2)) if self.by_channel else x.shape
        position = torch.arange(math.prod(shape), device=x.device).reshape(shape)
        uniform = hashed(position + hashed(self.dropout_key + place)) >> 11 & (2**53 - 1)
        keep = uniform >= int(self.p * 2**53)
        return torch.where(keep, x / (1 - self.p), torch.zeros_like(x))


def with_keyed_dropout(model: nn.Module) -> nn.Module:
    """A copy of the model in which every dropout layer is keyed."""
    model = copy.deepcopy(model)
    keyed: dict[nn.Module, nn.Module] = {}  # a layer may stand at several places
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if isinstance(child, (nn.Dropout, *BY_CHANNEL)):
                if child not in keyed:
                    by_channel = isinstance(child, BY_CHANNEL)
                    own = KeyedDropout(child.p, len(keyed), by_channel=by_channel)
                    # One that drops nothing needs no key, and does not make features random.
                    keyed[child] = own if child.p > 0 else nn.Identity()
                setattr(parent, name, keyed[child])
    return model


def key_names(model: nn.Module) -> list[str]:
    """The names under which the model's keys are given to a functional call."""
    return [name for name, _ in model.named_buffers() if name.split(".")[-1] == KEY]


def hashed(z: Tensor) -> Tensor:
    """The finaliser of SplitMix64. Shifts of int64 keep the sign in PyTorch, hence the masks."""
    z = z * -7046029254386353131
    z = (z ^ (z >> 30 & (2**34 - 1))) * -4658895280553007687
    z = (z ^ (z >> 27 & (2**37 - 1))) * -7723592293110705685
    return z ^ (z >> 31 & (2**33 - 1))

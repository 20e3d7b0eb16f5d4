"""Dropout whose masks are a function of a key, so that every engine drops the same units.

PyTorch's own masks come from a global stream: they depend on the order of clients and cannot be
the same for one client alone and for a stack of clients. Here the mask of a unit is a hash of
(key, layer, position); the key travels like a buffer, one per client and step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from srpfl.core.backbone import copied
from srpfl.engine.attention import made_attention
from srpfl.engine.recurrent import made_recurrent

KEY = "dropout_key"
USE = 1 << 32  # no model has so many layers
FAR = -7046029254386353131  # odd, and as SplitMix64 has it: no two units come to one position
BY_CHANNEL = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class KeyedDropout(nn.Module):
    """nn.Dropout, with masks from a key; or the kinds that drop whole channels.

    One layer may be used at several places of a model: each use in a pass has masks of its own.
    """

    dropout_key: Tensor

    def __init__(self, p: float, layer: int, *, channels_of: int | None = None) -> None:
        super().__init__()
        self.p, self.layer, self.channels_of = p, layer, channels_of
        self.uses = 0  # in this pass; the caller of the model sets it back
        self.register_buffer(KEY, torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        place = self.layer + USE * self.uses
        self.uses += 1
        return dropped(x, self.p, self.dropout_key, place, dropped_as_one(x, self.channels_of))


def dropped(
    x: Tensor, p: float, key: Tensor, place: int, shape: Sequence[int] | None = None
) -> Tensor:
    """Units of ``x`` set to zero with probability ``p``, the others scaled up. ``shape``: of the
    mask, where several units share one.

    A unit's fate follows from its index alone and not from the sizes of ``x``, which depend on who
    trains beside: batches are filled up to others' length, and texts to others' longest.
    """
    if p == 1:
        return x * 0
    position = hashed(key + place)
    for size in x.shape if shape is None else shape:
        position = position[..., None] * FAR + torch.arange(size, device=x.device)
    uniform = hashed(position) >> 11 & (2**53 - 1)
    keep = uniform >= int(p * 2**53)
    return torch.where(keep, x / (1 - p), torch.zeros_like(x))


class NoDropout(nn.Identity):
    """A dropout layer that drops nothing; models may ask it how much it drops."""

    p = 0.0


def dropped_as_one(x: Tensor, channels_of: int | None) -> Sequence[int]:
    """The shape of the mask for channels with so many dimensions (None: for single units). As in
    PyTorch, 1-D and 3-D channels may come without a batch."""
    if channels_of is None:
        return x.shape
    alone = channels_of != 2 and x.ndim == channels_of + 1
    kept = 1 if alone else 2
    return (*x.shape[:kept], *[1] * (x.ndim - kept))


def with_keyed_dropout(model: nn.Module) -> nn.Module:
    """A copy of the model in which every dropout layer is keyed, that of recurrent layers and of
    attention included."""
    model = copied(model)
    keyed: dict[nn.Module, nn.Module] = {}  # a layer may stand at several places
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if isinstance(child, (nn.Dropout, *BY_CHANNEL)):
                if child not in keyed:
                    own = KeyedDropout(child.p, len(keyed), channels_of=_channels(child))
                    own.train(child.training)
                    # One that drops nothing needs no key, and does not make features random.
                    keyed[child] = own if child.p > 0 else NoDropout()
                setattr(parent, name, keyed[child])
    layers = len(keyed)
    for module in list(model.modules()):
        if drops_inside(module):
            own = KeyedDropout(float(module.dropout), layers)  # type: ignore[arg-type]
            module.keyed = own.train(module.training)
            layers += 1
    return model


def drops_inside(module: nn.Module) -> bool:
    """Make a recurrent or attention layer one of ours; whether it then lacks a keyed dropout."""
    if isinstance(module, nn.RNNBase):
        drops = made_recurrent(module) and module.dropout > 0 and module.num_layers > 1
    elif isinstance(module, nn.MultiheadAttention):
        drops = module.dropout > 0 and made_attention(module)
    else:
        return False
    return drops and not hasattr(module, "keyed")


def _channels(layer: nn.Module) -> int | None:
    return next((n for n, kind in enumerate(BY_CHANNEL, 1) if isinstance(layer, kind)), None)


def key_names(model: nn.Module) -> list[str]:
    """The names under which the model's keys are given to a functional call."""
    return [name for name, _ in model.named_buffers() if name.split(".")[-1] == KEY]


def hashed(z: Tensor) -> Tensor:
    """The finaliser of SplitMix64. Shifts of int64 keep the sign in PyTorch, hence the masks."""
    z = z * FAR
    z = (z ^ (z >> 30 & (2**34 - 1))) * -4658895280553007687
    z = (z ^ (z >> 27 & (2**37 - 1))) * -7723592293110705685
    return z ^ (z >> 31 & (2**33 - 1))

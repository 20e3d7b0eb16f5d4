"""What an algorithm remembers: named bundles of tensors, on the server or with each client.

A client's own slots go the way of its personal part: kept only if its answer counted, on its own
disk in a deployment, never sent unless the algorithm sends them. For that both are packed into one
dict of tensors; a slot's tensors go by ``@slot/name``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from srpfl.core.split import Params

Slots = dict[str, Params]
MARK = "@"  # no parameter's name begins with it


class Given(NamedTuple):
    """What a client has when it begins its local work."""

    shared: Params  # as the server sent it
    personal: Params
    server: Slots  # what else the server sent
    own: Slots  # what the client has kept
    about: Params = {}  # noqa: RUF012 - which client it is: see `about`


class Trained(NamedTuple):
    """What a client has after its local work."""

    shared: Params
    personal: Params
    own: Slots  # with the slots that plans have trained
    steps: Tensor  # how many steps it took on the model
    gradient: Params  # of its mean loss at what was sent, if it was wanted


class Reply(NamedTuple):
    """What comes of a client's local work."""

    shared: Params  # its answer
    personal: Params  # kept by the client
    own: Slots = {}  # noqa: RUF012 - kept by the client; nobody writes to it
    sent: Slots = {}  # noqa: RUF012 - what else it sends


def about(
    client: int | Sequence[int],
    samples: int | Sequence[int],
    round: int | Sequence[int],
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Params:
    """What rules and algorithms may know of a client beside tensors that were sent or kept: its
    number, how many samples it has, and how many rounds were played before this one. Of several
    clients, with a row for each."""
    return {
        "client": torch.tensor(client, device=device),
        "samples": torch.tensor(samples, dtype=dtype, device=device),
        "round": torch.tensor(round, dtype=dtype, device=device),
    }


def packed(part: Mapping[str, Tensor], slots: Mapping[str, Mapping[str, Tensor]]) -> Params:
    """A part of the model and slots as one dict.

    >>> sorted(packed({"w": Tensor([1])}, {"c": {"w": Tensor([2])}}))
    ['@c/w', 'w']
    """
    flat = dict(part)
    for slot, tensors in slots.items():
        flat |= {f"{MARK}{slot}/{name}": value for name, value in tensors.items()}
    return flat


def unpacked(flat: Mapping[str, Tensor]) -> tuple[Params, Slots]:
    """The inverse of :func:`packed`; a slot without a tensor is not in it.

    >>> unpacked(packed({"w": Tensor([1])}, {"c": {"w": Tensor([2])}}))
    ({'w': tensor([1.])}, {'c': {'w': tensor([2.])}})
    """
    part: Params = {}
    slots: Slots = {}
    for key, value in flat.items():
        if key.startswith(MARK):
            slot, _, name = key[1:].partition("/")
            slots.setdefault(slot, {})[name] = value
        else:
            part[key] = value
    return part, slots

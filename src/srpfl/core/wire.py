"""Smaller answers: what a client has changed, in few numbers, with the error kept for next time.

``int8`` rounds each tensor's change to 255 levels of its largest; ``top:0.05`` sends the largest
twentieth of it. What is lost is kept by the client and added to its next change (error feedback:
Seide et al., 2014; Stich et al., 2018).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from srpfl.core.slots import Given, Reply, Slots
from srpfl.core.split import Params
from srpfl.errors import ConfigError

SLOT = "wire"  # of the answer, and of what the client keeps
LEVELS = 127


@dataclass(frozen=True)
class Wire:
    """How answers travel."""

    share: float | None = None  # of the numbers, the largest; None: all of them as int8

    def keeps(self, shared: Params) -> Slots:
        """What a client keeps before its first answer: no error yet."""
        return {SLOT: {n: torch.zeros_like(v) for n, v in shared.items() if _travels(v)}}

    def close(self, reply: Reply, given: Given, *, moves: bool = True) -> Reply:
        """The reply as it is sent; what is not a real number goes as it is. A client that sends its
        own model sends it again each time: what was lost then is in the next one anyway."""
        sent, error = {}, {}
        for name, value in reply.shared.items():
            if not _travels(value):
                sent[name] = value
                continue
            wanted = value - given.shared[name] + given.own[SLOT][name]
            parts = self.encoded(wanted)
            lost = wanted - self.decoded(parts, wanted)
            error[name] = lost if moves else torch.zeros_like(lost)
            sent |= {f"{name}|{part}": tensor for part, tensor in parts.items()}
        own = {**reply.own, SLOT: error}
        return Reply({}, reply.personal, own, {**reply.sent, SLOT: sent})

    def open(self, sent: Params, origin: Params) -> Params:
        """The shared part of an answer whose client began at the origin."""
        shared = {}
        for name, value in origin.items():
            if not _travels(value):
                shared[name] = sent[name]
                continue
            first = next(tensor for key, tensor in sent.items() if key.startswith(f"{name}|"))
            parts = {k.rpartition("|")[2]: v for k, v in sent.items() if k.startswith(f"{name}|")}
            here = value.to(first.device)
            shared[name] = here + self.decoded(parts, here)
        return shared

    def encoded(self, change: Tensor) -> Params:
        """A change in few numbers.

        >>> change = torch.tensor([1.0, -2.0])
        >>> {name: part.tolist() for name, part in Wire().encoded(change).items()}["levels"]
        [64, -127]
        >>> {name: part.tolist() for name, part in Wire(0.5).encoded(change).items()}
        {'values': [-2.0], 'places': [1]}
        """
        if self.share is None:
            scale = change.abs().amax().clamp(min=1e-30) / LEVELS
            return {"levels": (change / scale).round().to(torch.int8), "scale": scale}
        flat = change.reshape(-1)
        places = flat.abs().topk(max(1, math.ceil(self.share * flat.numel()))).indices
        return {"values": flat.gather(0, places), "places": places.to(torch.int32)}

    def decoded(self, parts: Params, like: Tensor) -> Tensor:
        """The change that the parts stand for."""
        if self.share is None:
            return parts["levels"].to(like.dtype) * parts["scale"]
        flat, values = torch.zeros_like(like).reshape(-1), parts["values"].to(like.dtype)
        return flat.scatter(0, parts["places"].to(torch.int64), values).reshape(like.shape)


def wire_of(text: str) -> Wire | None:
    """The wire of that name; None for answers as they are.

    >>> wire_of("top:0.05")
    Wire(share=0.05)
    """
    kind, _, share = text.partition(":")
    if text in ("full", "int8"):
        return None if text == "full" else Wire()
    try:
        found = float(share)
    except ValueError:
        found = math.nan
    if kind != "top" or not 0 < found <= 1:
        raise ConfigError(f"wire is 'full', 'int8' or such as 'top:0.05', not '{text}'")
    return Wire(found)


def _travels(value: Tensor) -> bool:
    return value.is_floating_point() and value.numel() > 0

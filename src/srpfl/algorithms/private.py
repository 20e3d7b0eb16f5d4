"""An average that hides each client: clipped updates and Gaussian noise (McMahan et al., 2018)."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from srpfl.core.fields import check_fields
from srpfl.core.split import Params
from srpfl.errors import ConfigError

SAFE = 1 - 1e-9  # of the norm: sums of squares in doubles are not exact


@dataclass(frozen=True)
class Private:
    """x + (Σ clipped (x_i − x) + N(0, (zS)²)) / n: one client changes the sum by at most S.

    The noise is for the sum, so a round with few answers has more of it in its mean. In a
    simulation draws depend on ``key`` and on the model that was sent, so a run can be repeated. In
    a deployment they must be secret: with ``key=None`` they come from the system's randomness.
    """

    clip: float = 1.0  # S
    noise: float = 1.0  # z
    key: int | None = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        check_fields(self)
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise ConfigError(f"the norm of an update must be a positive number, not {self.clip:g}")
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise ConfigError(f"the noise must be zero or a positive number, not {self.noise:g}")

    def __call__(self, sent: Params, parts: Sequence[Params], weights: Sequence[float]) -> Params:
        if len(set(weights)) > 1:
            raise ConfigError("private averages weigh all answers alike: use weighting='uniform'")
        total = self.drawn(sent, answers=1)
        for part in parts:
            for name, value in self.clipped(sent, part).items():
                total[name] += value
        moved = {
            n: (sent[n].double() + value / len(parts)).to(sent[n].dtype)
            for n, value in total.items()
        }
        return {**sent, **moved}  # counts stay as they were: they would tell of a client

    def clipped(self, sent: Params, part: Params) -> Params:
        """A client's update, cut to a norm of at most S. What is no number counts as nothing."""
        update = {n: part[n].double() - v.double() for n, v in sent.items() if n in part}
        update = {n: value for n, value in update.items() if sent[n].is_floating_point()}
        squares = [value.square().sum() for value in update.values()]
        norm = float(torch.stack(squares).sum().sqrt())
        scale = min(1.0, SAFE * self.clip / norm) if norm > 0 else 1.0
        if not math.isfinite(norm):
            return {name: torch.zeros_like(value) for name, value in update.items()}
        return {name: value * scale for name, value in update.items()}

    def drawn(self, sent: Params, answers: int, place: int = 0) -> Params:
        """Noise for each number, where so many answers carry a part of it."""
        names = sorted(name for name, value in sent.items() if value.is_floating_point())
        sizes = [sent[name].numel() for name in names]
        deviation = self.noise * self.clip / math.sqrt(answers)
        flat = deviation * normal(entropy(self.key, sent, place), sum(sizes))
        return {
            name: piece.reshape(sent[name].shape).to(sent[name].device)
            for name, piece in zip(names, torch.split(flat, sizes), strict=True)
        }

    def spread(self, sent: Params, answers: int) -> float:
        """The most that answers can vary: S² between clients, and n times the noise of the mean."""
        numbers = sum(value.numel() for value in sent.values() if value.is_floating_point())
        return self.clip**2 * (1 + numbers * self.noise**2 / answers)

    def most(self, wait: int) -> None:
        """However many are asked, the promise is the same."""

    def secret(self) -> Private:
        """As real clients may trust it: noise that can be drawn again hides nothing."""
        return replace(self, key=None)


def entropy(key: int | None, sent: Params, place: int) -> bytes:
    """What draws are made of: of their own for each model that was sent and each place; new and
    secret ones without a key."""
    if key is None:
        return secrets.token_bytes(32)
    found = hashlib.sha256(repr((key, place)).encode())
    for name, value in sorted(sent.items()):
        flat = value.detach().cpu().contiguous().flatten()
        found.update(name.encode() + flat.view(torch.uint8).numpy().tobytes())
    return found.digest()


def normal(seed: bytes, numbers: int) -> Tensor:
    """Normal draws. PyTorch's generators take 32 bits of a seed, which can all be tried out; of
    these nobody can guess one from the others."""
    bits = np.frombuffer(hashlib.shake_256(seed).digest(8 * numbers), dtype="<u8") >> np.uint64(12)
    found: Tensor = torch.special.ndtri((torch.from_numpy(bits.astype(float)) + 0.5) / 2.0**52)
    return found

"""An average that hides each client: clipped updates and Gaussian noise (McMahan et al., 2018)."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from srpfl.core.randomness import torch_seed
from srpfl.core.split import Params
from srpfl.errors import ConfigError

SECRET = secrets.randbits(256)  # of this process


@dataclass(frozen=True)
class Private:
    """x + (Σ clipped (x_i − x) + N(0, (zS)²)) / n: one client changes the sum by at most S.

    The noise is for the sum, so a round with few answers has more of it in its mean. With
    ``where="clients"`` each answer carries its n-th part of the noise, as a server that is not
    trusted wants it. Draws depend on ``key`` and on the model that was sent, so a run can be
    repeated, and a round that is played again after a crash has the same noise. In a deployment the
    key must be a secret: with ``key=None`` each process has one of its own, which nobody sees.
    """

    clip: float = 1.0  # S
    noise: float = 1.0  # z
    where: Literal["server", "clients"] = "server"
    key: int | None = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise ConfigError(f"the norm of an update must be a positive number, not {self.clip:g}")
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise ConfigError(f"the noise must be zero or a positive number, not {self.noise:g}")
        if self.where not in ("server", "clients"):
            raise ConfigError(f"noise is added at the 'server' or the 'clients', not {self.where}")

    def __call__(self, sent: Params, parts: Sequence[Params], weights: Sequence[float]) -> Params:
        if len(set(weights)) > 1:
            raise ConfigError("private averages weigh all answers alike: use weighting='uniform'")
        names = [name for name, value in sent.items() if value.is_floating_point()]
        total = {name: torch.zeros_like(sent[name], dtype=torch.float64) for name in names}
        share = 0.0 if self.where == "server" else self.noise * self.clip / math.sqrt(len(parts))
        for place, part in enumerate(parts):
            update = self.clipped(sent, part)
            for name, value in self._noisy(update, share, sent, place).items():
                total[name] += value
        if self.where == "server":
            total = self._noisy(total, self.noise * self.clip, sent, len(parts))
        moved = {n: (sent[n].double() + total[n] / len(parts)).to(sent[n].dtype) for n in names}
        return {**sent, **moved}  # counts stay as they were: they would tell of a client

    def clipped(self, sent: Params, part: Params) -> Params:
        """A client's update, cut to a norm of at most S. What is no number counts as nothing."""
        update = {n: part[n].double() - v.double() for n, v in sent.items() if n in part}
        update = {n: value for n, value in update.items() if sent[n].is_floating_point()}
        squares = [value.square().sum() for value in update.values()]
        norm = float(torch.stack(squares).sum().sqrt())
        scale = min(1.0, self.clip / norm) if norm > 0 else 1.0
        if not math.isfinite(norm):
            return {name: torch.zeros_like(value) for name, value in update.items()}
        return {name: value * scale for name, value in update.items()}

    def spread(self, sent: Params, answers: int) -> float:
        """The most that answers can vary: S² between clients, and n times the noise of the mean."""
        numbers = sum(value.numel() for value in sent.values() if value.is_floating_point())
        return self.clip**2 * (1 + numbers * self.noise**2 / answers)

    def most(self, wait: int) -> None:
        """However many are asked, the promise is the same."""

    def secret(self) -> Private:
        """As real clients may trust it: noise that can be drawn again hides nothing."""
        return replace(self, key=None)

    def _noisy(self, update: Params, deviation: float, sent: Params, place: int) -> Params:
        if deviation == 0:
            return update
        key = SECRET if self.key is None else self.key
        seed = torch_seed(key, "noise", _digest(sent), place)
        draws = torch.Generator().manual_seed(seed)
        return {
            name: value + deviation * _normal(value, draws)
            for name, value in sorted(update.items())
        }


def _normal(like: Tensor, draws: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=draws, dtype=torch.float64).to(like.device)


def _digest(params: Params) -> int:
    """What names a model, so that every round has draws of its own."""
    found = hashlib.sha256()
    for name, value in sorted(params.items()):
        flat = value.detach().cpu().contiguous().flatten()
        found.update(name.encode() + flat.view(torch.uint8).numpy().tobytes())
    return int.from_bytes(found.digest())

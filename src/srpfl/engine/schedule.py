"""Who takes which step with which samples, on the device, in pieces of equal shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from srpfl.engine.draws import Draws
from srpfl.engine.store import Held


@dataclass(frozen=True)
class Order:
    """Some steps of some clients, steps first."""

    rows: range  # the clients
    index: Tensor  # steps x clients x batch: places in the held samples, 0 for padding
    augment: Tensor | None  # steps x clients x batch x 3
    weights: Tensor  # steps x clients x batch
    keys: Tensor  # steps x clients
    active: Tensor  # steps x clients
    ragged: bool  # whether some client is not active in some step
    padded: bool  # whether some client's batch is smaller than others'


@dataclass(frozen=True)
class Schedule:
    """All steps of a phase, steps first. Clients are sorted: those with most steps first."""

    steps: Tensor  # clients
    counts: list[int]  # the same, on the host
    index: Tensor
    augment: Tensor | None
    weights: Tensor
    keys: Tensor
    active: Tensor
    uneven: bool  # whether some batch is smaller than others

    @classmethod
    def of(cls, draws: Draws, held: Held, dtype: torch.dtype) -> Schedule:
        batches = draws.batches.transpose(0, 1)
        present = batches >= 0
        starts = torch.as_tensor(held.starts, device=batches.device)
        size = present.sum(2, keepdim=True)
        return cls(
            steps=torch.tensor(draws.steps, device=batches.device),
            counts=draws.steps,
            index=torch.where(present, batches + starts[:, None], 0),
            augment=None if draws.augment is None else draws.augment.transpose(0, 1),
            weights=present.to(dtype) / size.clamp(min=1),
            keys=draws.dropout.T,
            active=size[..., 0] > 0,
            uneven=draws.uneven,
        )

    def orders(self, first: int, last: int, most: Callable[[int], int]) -> Iterator[Order]:
        """The steps of the clients first..last. Once half of them are through, only the others
        are carried on. ``most`` says how many steps at a time, given the batch size."""
        step, active = 0, last - first
        end = max(self.counts[first:last])
        while step < end:
            going = sum(count > step for count in self.counts[first:last])
            if 2 * going <= active:
                active = going
            halfway = sorted(self.counts[first : first + active])[active // 2]
            until = min(step + most(self.index.shape[2]), halfway)
            part = slice(step, until), slice(first, first + active)
            ragged = min(self.counts[first : first + active]) < until
            yield Order(
                rows=range(first, first + active),
                index=self.index[part],
                augment=None if self.augment is None else self.augment[part],
                weights=self.weights[part],
                keys=self.keys[part],
                active=self.active[part],
                ragged=ragged,
                padded=ragged or self.uneven,
            )
            step = until

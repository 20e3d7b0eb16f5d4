"""The random choices of clients' local work, as tensors that every engine reads alike.

A choice is a hash of a key and its place: of (seed, purpose, round, phase), then the client, then
the step or sample. So the choices of a whole cohort are made in a few operations, on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from srpfl.core.plan import Phase
from srpfl.core.randomness import torch_seed
from srpfl.data.base import Transform
from srpfl.engine.base import Job
from srpfl.engine.dropout import hashed

WIDTH = 1 << 32  # no batch is larger, so that steps can be numbered apart


@dataclass(frozen=True)
class Draws:
    """One phase of some clients. Fewer steps or smaller batches than others' are padded."""

    steps: list[int]  # how many each client takes, the first ones
    batches: Tensor  # clients x steps x batch size: sample indices, -1 for padding
    augment: Tensor | None  # clients x steps x batch size x (row, column, flip)
    dropout: Tensor  # clients x steps: the key of the step's dropout masks
    uneven: bool  # whether some batch is smaller than others


def draw(
    jobs: Sequence[Job],
    clients: Sequence[int],
    phase: Phase,
    number: int,
    batch_size: int | None,
    sizes: Sequence[int],
    transform: Transform,
    device: torch.device,
) -> Draws:
    """What clients with so many samples do at random in a phase of their jobs, the one of that
    number; one job for each client."""
    known = {size: phase.step_count(size, batch_size) for size in set(sizes)}
    steps = [known[size] for size in sizes]
    widths = [min(batch_size or size, size) for size in sizes]
    whole = (len(clients), max(steps), max(widths))
    different = {id(job): job for job in jobs}  # most cohorts have one

    def keys(purpose: str) -> Tensor:
        seeds = {
            key: torch_seed(job.seed, f"{job.purpose}/{purpose}", job.round, number)
            for key, job in different.items()
        }
        bases = torch.tensor([seeds[id(job)] for job in jobs], dtype=torch.int64, device=device)
        numbers = torch.tensor(clients, dtype=torch.int64, device=device)
        return hashed(hashed(numbers) + bases)[:, None]

    step = torch.arange(whole[1], device=device)
    slot = torch.arange(whole[2], device=device)
    batches = _batches(keys("order"), step, slot, steps, widths, sizes)
    augment = None
    if transform.augments:
        place = step[:, None] * WIDTH + slot
        chances = [hashed(keys(what)[..., None] + place) for what in ("row", "column", "flip")]
        bounds = [2 * transform.crop + 1, 2 * transform.crop + 1, 1 + transform.flip]
        drawn = [_below(chance, bound) for chance, bound in zip(chances, bounds, strict=True)]
        augment = torch.stack(drawn, dim=-1)
    uneven = len(set(widths)) > 1 or any(
        size % width for size, width in zip(sizes, widths, strict=True)
    )
    return Draws(steps, batches, augment, hashed(keys("dropout") + step), uneven)


def _batches(
    keys: Tensor,
    step: Tensor,
    slot: Tensor,
    steps: Sequence[int],
    widths: Sequence[int],
    sizes: Sequence[int],
) -> Tensor:
    """Each epoch is a permutation of the client's samples, cut into batches; its last is short
    when they do not come out even."""
    per_epoch = [-(-size // width) for size, width in zip(sizes, widths, strict=True)]
    epochs = max(-(-count // per) for count, per in zip(steps, per_epoch, strict=True))
    size, width, per, count = (
        torch.tensor(values, device=keys.device)[:, None]
        for values in (sizes, widths, per_epoch, steps)
    )
    sample = torch.arange(max(sizes), device=keys.device)
    epoch = torch.arange(epochs, device=keys.device)
    chance = hashed(keys[..., None] + (epoch[:, None] * WIDTH + sample))
    # Samples that a client does not have go to the end of its permutations.
    chance = torch.where((sample < size)[:, None], chance, torch.iinfo(torch.int64).max)
    order = chance.argsort(dim=2)
    place = (step % per * width)[..., None] + slot  # within the epoch
    there = (slot < width)[:, None] & (place < size[..., None]) & (step < count)[..., None]
    flat = (step // per)[..., None] * len(sample) + place
    found = order.flatten(1).gather(1, (flat * there).flatten(1)).reshape(flat.shape)
    return torch.where(there, found, -1)


def _below(chance: Tensor, bound: int) -> Tensor:
    """Whole numbers from 0 to bound - 1; 32 random bits leave no bias worth the name."""
    return ((chance >> 32 & (2**32 - 1)) * bound >> 32).to(torch.int16)

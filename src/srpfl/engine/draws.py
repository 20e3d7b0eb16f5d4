"""The random choices of a client's local work, as arrays that every engine reads alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from srpfl.data.base import IntArray, Transform
from srpfl.engine.base import Job
from srpfl.randomness import stream


@dataclass(frozen=True)
class Draws:
    """One client, one phase."""

    batches: IntArray  # steps x batch size: sample indices, -1 where a batch is short
    augment: NDArray[np.int16] | None  # steps x batch size x (row, column, flip)
    dropout: IntArray  # steps: the key of the step's dropout masks


def draw(job: Job, client: int, phase: int, samples: int, transform: Transform) -> Draws:
    """What client ``client`` does at random in phase number ``phase`` of the job."""
    plan = job.plan
    size = min(plan.batch_size or samples, samples)
    steps = plan.phases[phase].step_count(samples, plan.batch_size)
    where = (job.round, client, phase)
    per_epoch = -(-samples // size)
    epochs = -(-steps // per_epoch)
    rng = stream(job.seed, f"{job.purpose}/order", *where)
    # One permutation per epoch, padded so that each epoch's last batch may be short.
    order = np.full((epochs, per_epoch * size), -1, dtype=np.int64)
    for epoch in order:
        epoch[:samples] = rng.permutation(samples)
    batches = order.reshape(epochs * per_epoch, size)[:steps]
    augment = None
    if transform.augments:
        rng = stream(job.seed, f"{job.purpose}/augment", *where)
        augment = np.empty((*batches.shape, 3), dtype=np.int16)
        # Two calls with one bound each: NumPy is ten times slower with an array of bounds.
        shifts = rng.integers(2 * transform.crop + 1, size=(*batches.shape, 2), dtype=np.int16)
        augment[..., :2] = shifts
        augment[..., 2] = rng.integers(1 + transform.flip, size=batches.shape, dtype=np.int16)
    rng = stream(job.seed, f"{job.purpose}/dropout", *where)
    return Draws(batches, augment, rng.integers(2**62, size=steps))


@dataclass(frozen=True)
class StackedDraws:
    """Many clients, one phase. Clients with fewer steps or smaller batches are padded with -1."""

    steps: IntArray  # clients: how many steps each takes, the first ones
    batches: IntArray  # clients x steps x batch size
    augment: NDArray[np.int16] | None  # clients x steps x batch size x 3
    dropout: IntArray  # clients x steps


def stacked(draws: Sequence[Draws]) -> StackedDraws:
    steps = np.array([len(each.batches) for each in draws], dtype=np.int64)
    shape = (len(draws), int(steps.max()), max(each.batches.shape[1] for each in draws))
    batches = np.full(shape, -1, dtype=np.int64)
    dropout = np.zeros(shape[:2], dtype=np.int64)
    augment = None
    if any(each.augment is not None for each in draws):
        augment = np.zeros((*shape, 3), dtype=np.int16)
    for place, each in enumerate(draws):
        count, width = each.batches.shape
        batches[place, :count, :width] = each.batches
        dropout[place, :count] = each.dropout
        if augment is not None and each.augment is not None:
            augment[place, :count, :width] = each.augment
    return StackedDraws(steps, batches, augment, dropout)

"""The random choices of a client's local work, as arrays that every engine reads alike."""

from __future__ import annotations

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
        bounds = [2 * transform.crop + 1, 2 * transform.crop + 1, 2 if transform.flip else 1]
        augment = rng.integers(0, bounds, size=(*batches.shape, 3), dtype=np.int16)
    rng = stream(job.seed, f"{job.purpose}/dropout", *where)
    return Draws(batches, augment, rng.integers(2**62, size=steps))

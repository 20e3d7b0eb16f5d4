"""The random streams that a user's code may draw from by itself: PyTorch's, NumPy's, Python's."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


@contextmanager
def streams(seed: int | None = None, gpus: Sequence[torch.device] = ()) -> Iterator[None]:
    """They may be drawn from here, and are afterwards where they were before. With a seed, they
    begin at it."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the global one
    try:
        with torch.random.fork_rng(devices=gpus):
            if seed is not None:
                torch.manual_seed(seed)
                np.random.seed(seed % 2**32)  # noqa: NPY002
                random.seed(seed)
            yield
    finally:
        np.random.set_state(numpy)  # noqa: NPY002
        random.setstate(python)


def standing() -> tuple[Any, ...]:
    """Where the streams stand, to compare."""
    numpy: Any = np.random.get_state()  # noqa: NPY002
    _, numbers, *place = numpy
    own = torch.get_rng_state().numpy().tobytes()
    return own, numbers.tobytes(), *place, random.getstate()

"""Randomness as a function of (seed, purpose, round, client), never of history.

Whoever needs a draw asks for the stream of its own purpose. So a result does not depend on the
engine, on the order in which clients are visited, on a restart, or on what else was drawn.
"""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, purpose: str, *where: int) -> np.random.Generator:
    """The random stream of one purpose at one place, such as a round or a round and a client.

    >>> a, b = stream(0, "order", 3, 7), stream(0, "order", 3, 7)
    >>> bool(a.random() == b.random())
    True
    >>> bool(stream(0, "order", 3, 7).random() == stream(0, "order", 3, 8).random())
    False
    """
    # crc32 and not hash(): the latter differs from process to process.
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key(seed, purpose, *where))))


def key(seed: int, purpose: str, *where: int) -> list[int]:
    """The entropy of a stream: non-negative integers that name it."""
    return [seed, zlib.crc32(purpose.encode()), *where]


def torch_seed(seed: int, purpose: str, *where: int) -> int:
    """A seed for a generator that takes one integer, as PyTorch's do."""
    return int(stream(seed, purpose, *where).integers(2**63))

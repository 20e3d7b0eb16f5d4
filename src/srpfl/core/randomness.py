"""Randomness as a function of (seed, purpose, round, client), never of history.

Code that needs a draw asks for the stream of its own purpose. So a result does not depend on the
engine, on the order in which clients are visited, on a restart, or on what else was drawn.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray


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


def places(seed: int, purpose: str, numbers: NDArray[np.int64], *where: int) -> NDArray[np.float64]:
    """A draw between 0 and 1 for each of some numbers, such as clients, whatever others there are.

    >>> some = places(0, "speed", np.array([7, 3]))
    >>> bool(some[1] == places(0, "speed", np.array([1, 2, 3]))[2])
    True
    """
    start = np.random.SeedSequence(key(seed, purpose, *where)).generate_state(1, np.uint64)
    with np.errstate(over="ignore"):
        # SplitMix64: a counter, and its bits mixed (Steele, Lea and Flood, 2014).
        bits = start + (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    drawn: NDArray[np.float64] = ((bits ^ (bits >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
    return drawn


def torch_seed(seed: int, purpose: str, *where: int) -> int:
    """A seed for a generator that takes one integer, as PyTorch's do."""
    return int(stream(seed, purpose, *where).integers(2**63))

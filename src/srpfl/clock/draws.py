"""Random numbers for the clients that are asked.

Up to a hundred thousand clients a stream is drawn for all of them and those asked are picked, as
the paper's runs were; beyond that each client's number is made from its own place in the stream,
so that a round costs what those asked cost.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from srpfl.clock.base import FloatArray, IntArray
from srpfl.core.randomness import places, stream

LARGE = 100_000  # clients beyond which nothing is drawn for those not asked


def uniforms(
    seed: int, purpose: str, clients: IntArray, population: int, *where: int
) -> FloatArray:
    """Between 0 and 1, for each of the clients.

    >>> few, many = (uniforms(0, "speed", np.array([3, 5]), m) for m in (10, 10**9))
    >>> bool(((0 <= few) & (few < 1) & (0 <= many) & (many < 1)).all())
    True
    """
    if population > LARGE:
        return places(seed, purpose, clients, *where)
    return _drawn("random", seed, purpose, population, *where)[clients]


def exponentials(
    seed: int, purpose: str, clients: IntArray, population: int, *where: int
) -> FloatArray:
    """Of mean 1, for each of the clients."""
    if population > LARGE:
        found: FloatArray = -np.log1p(-places(seed, purpose, clients, *where))
        return found
    return _drawn("exponential", seed, purpose, population, *where)[clients]


def wholes(seed: int, purpose: str, clients: IntArray, population: int, below: int) -> IntArray:
    """Whole numbers from 0, for each of the clients."""
    if population > LARGE:
        return (places(seed, purpose, clients) * below).astype(np.int64)
    found: IntArray = stream(seed, purpose).integers(below, size=population)[clients]
    return found


def normal_pairs(
    seed: int, purpose: str, clients: IntArray, population: int, *where: int
) -> FloatArray:
    """Two standard normal numbers for each of the clients."""
    if population > LARGE:  # by Box and Muller
        far = np.sqrt(-2 * np.log1p(-places(seed, purpose, clients, *where, 0)))
        turn = 2 * np.pi * places(seed, purpose, clients, *where, 1)
        return np.stack([far * np.cos(turn), far * np.sin(turn)], axis=1)
    found: FloatArray = stream(seed, purpose, *where).normal(size=(population, 2))[clients]
    return found


def slowest(
    seed: int, purpose: str, clients: IntArray, population: int, part: float
) -> NDArray[np.bool_]:
    """Which of the clients are in the slow part of the population: exactly so many of a small one,
    each with that chance in a large one."""
    if population > LARGE:
        return places(seed, purpose, clients) >= 1 - part
    fast = population - np.rint(part * population)
    slow: NDArray[np.bool_] = _ranks(seed, purpose, population)[clients] >= fast
    return slow


def _drawn(kind: str, seed: int, purpose: str, population: int, *where: int) -> FloatArray:
    if where:
        return _draw(kind, seed, purpose, population, *where)
    return _once(kind, seed, purpose, population)


def _draw(kind: str, seed: int, purpose: str, population: int, *where: int) -> FloatArray:
    drawn: FloatArray = getattr(stream(seed, purpose, *where), kind)(size=population)
    return drawn


@lru_cache(maxsize=8)
def _once(kind: str, seed: int, purpose: str, population: int) -> FloatArray:
    """What is the same in every round."""
    return _draw(kind, seed, purpose, population)


@lru_cache(maxsize=8)
def _ranks(seed: int, purpose: str, population: int) -> IntArray:
    return np.argsort(np.argsort(_once("random", seed, purpose, population)))

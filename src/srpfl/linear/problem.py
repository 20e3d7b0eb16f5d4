"""The data of the linear case: y = w_i*ᵀ B*ᵀ x + z, one B* for all and a head w_i* for each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from srpfl.core.randomness import stream
from srpfl.errors import ConfigError

Array = NDArray[np.float64]
Clients = NDArray[np.int64]

# Clients whose batches are held at once: as many as fit into this many numbers (64 MiB).
CHUNK = 2**23


@dataclass(frozen=True, kw_only=True)
class Problem:
    """M clients with a common d x k representation (Assumptions 1 to 3).

    >>> problem = Problem(clients=6, dim=5, rank=2, samples=10, noise=0.5, seed=0)
    >>> x, y = problem.batch("train", 1, np.array([0, 4]))
    >>> x.shape, y.shape
    ((2, 10, 5), (2, 10))
    """

    clients: int  # M
    dim: int  # d
    rank: int  # k
    samples: int  # m, fresh ones for every client in every round
    noise: float = 1.0  # σ
    seed: int = 0

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise ConfigError(f"clients must be at least 1, not {self.clients}")
        if self.dim < 1:
            raise ConfigError(f"dim must be at least 1, not {self.dim}")
        if not 1 <= self.rank <= self.dim:
            raise ConfigError(f"rank must be between 1 and dim = {self.dim}, not {self.rank}")
        if self.samples < self.rank:
            raise ConfigError(
                f"samples must be at least rank = {self.rank}, not {self.samples}: "
                "with fewer a client's head has no unique solution"
            )
        if not 0 <= self.noise <= 1e100:  # labels are squared, and must stay finite
            raise ConfigError(f"noise must be between 0 and 1e100, not {self.noise}")
        if self.seed < 0:
            raise ConfigError(f"seed must be zero or a positive integer, not {self.seed}")

    @cached_property
    def representation(self) -> Array:
        """B*, orthonormal."""
        draw = stream(self.seed, "linear representation").standard_normal((self.dim, self.rank))
        return np.linalg.qr(draw).Q

    @cached_property
    def heads(self) -> Array:
        """W*, whose row i is w_i*, of norm √k."""
        draw = stream(self.seed, "linear heads").standard_normal((self.clients, self.rank))
        heads: Array = draw / np.linalg.norm(draw, axis=1, keepdims=True)
        heads *= math.sqrt(self.rank)
        return heads

    def batch(self, purpose: str, round: int, clients: Clients) -> tuple[Array, Array]:
        """A fresh batch of each client: x (clients, m, d) and y (clients, m).

        It is a function of seed, purpose, round and client, no matter who else is asked for.
        """
        size = self.samples * (self.dim + 1)
        draws = np.empty((len(clients), size))
        generator = stream(self.seed, f"linear {purpose}", round)
        bits = generator.bit_generator
        state = bits.state
        for row, client in zip(draws, clients, strict=True):
            # Philox counts in 256 bits. A client is a jump to its own 2^128 of them, which costs
            # a microsecond; seeding a stream of its own costs twenty.
            state["state"]["counter"] = np.array([0, 0, client, 0], dtype=np.uint64)
            bits.state = state
            generator.standard_normal(out=row)
        x = draws[:, : self.samples * self.dim].reshape(-1, self.samples, self.dim)
        z = self.noise * draws[:, self.samples * self.dim :]
        directions = self.heads[clients] @ self.representation.T  # B* w_i*
        return x, (x @ directions[:, :, None])[:, :, 0] + z

    def chunks(self, count: int) -> Iterator[slice]:
        """So many clients in groups whose batches fit into memory together."""
        size = max(1, CHUNK // (self.samples * (self.dim + 1)))
        for first in range(0, count, size):
            yield slice(first, min(count, first + size))

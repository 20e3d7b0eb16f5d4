"""Choosing by speed: FedCS and TiFL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from srpfl.errors import ConfigError, number, whole
from srpfl.participation.base import Call, Memory, Outcome, uniform
from srpfl.participation.selecting import FloatArray, Seen, Selecting, of, weighted


@dataclass(frozen=True, kw_only=True)
class FedCS(Selecting):
    """As many as can be expected to answer in time, of candidates at random.

    Nishio and Yonetani, "Client selection for federated learning with heterogeneous resources in
    mobile edge" (ICC 2019). Clients here send at the same time, so the greedy choice is: the
    fastest first, while they are expected within ``seconds``. A client is expected to take what it
    took last; one that was never heard gets a chance. ``candidates`` is how many times as many
    clients are considered as are asked at most.
    """

    seconds: float = 1.0
    candidates: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < number("seconds", self.seconds) < np.inf:
            raise ConfigError(f"the time to answer must be a positive number, not {self.seconds}")
        if not 1 <= number("candidates", self.candidates) < np.inf:
            raise ConfigError(f"candidates must be 1 or more, not {self.candidates}")

    def choose(
        self, memory: Memory, call: Call, idle: Sequence[int], rng: np.random.Generator
    ) -> Sequence[int]:
        drawn = uniform(round(self.candidates * call.ask), idle, rng)
        times = of(memory["seen"], drawn, "time", 0.0)
        order = np.argsort(times, kind="stable")[: call.ask]
        in_time = [place for place in order if times[place] <= self.seconds]
        return tuple(sorted(drawn[place] for place in in_time or order[:1]))


@dataclass(frozen=True, kw_only=True)
class TiFL(Selecting):
    """One tier of equally fast clients per round.

    Chai et al., "TiFL: a tier-based federated learning system" (HPDC 2020). Until every client was
    asked once, those that were not are asked (profiling). Then clients are sorted into ``tiers``
    by time, and each round asks within one tier, drawn by its mean loss: a tier that is behind
    comes more often (the paper goes by test accuracy, which a server does not see here).
    ``credits`` limits how often a tier can be drawn; without it there is no limit.
    """

    tiers: int = 5
    credits: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("tiers", "credits"):
            value = getattr(self, name)
            if value is not None and whole(name, value) < 1:
                raise ConfigError(f"{name} must be at least 1, not {value}")

    def begin(self, population: int) -> Memory:
        return {**super().begin(population), "turns": [0] * self.tiers}

    def choose(
        self, memory: Memory, call: Call, idle: Sequence[int], rng: np.random.Generator
    ) -> Sequence[int]:
        seen = memory["seen"]
        new = [client for client in idle if str(client) not in seen]
        if new:
            return uniform(call.ask, new, rng)
        here = set(idle)
        tiers = [[client for client in tier if client in here] for tier in self.sorted(seen)]
        drawn = weighted(1, range(self.tiers), self.chances(memory, tiers), rng)[0]
        return uniform(call.ask, sorted(tiers[drawn] or idle), rng)

    def chances(self, memory: Memory, tiers: Sequence[Sequence[int]]) -> FloatArray:
        """Of each tier, to be drawn."""
        losses = [of(memory["seen"], tier, "loss", np.nan) for tier in tiers]
        # A tier of which only times are known is drawn as one that is behind.
        highest = max((np.nanmax(each) for each in losses if not np.isnan(each).all()), default=1.0)
        means = np.array([highest if np.isnan(each).all() else np.nanmean(each) for each in losses])
        possible = np.array([len(tier) > 0 for tier in tiers])
        left = possible & (np.array(memory["turns"]) < (self.credits or np.inf))
        return np.where(left if left.any() else possible, np.maximum(means, 1e-12), 0.0)

    def sorted(self, seen: Seen) -> list[list[int]]:
        """The clients by time, in groups of about the same size, the fastest first."""
        clients = sorted(int(client) for client in seen)
        order = np.argsort(of(seen, clients, "time", np.inf), kind="stable")
        return [[clients[place] for place in part] for part in np.array_split(order, self.tiers)]

    def learn(self, memory: Memory, outcome: Outcome) -> Memory:
        seen, turns = memory["seen"], memory["turns"]
        if all(str(client) in seen for client in outcome.asked):  # no longer profiling
            drawn = [outcome.asked[0] in tier for tier in self.sorted(seen)]
            turns = [turn + now for turn, now in zip(turns, drawn, strict=True)]
        return {**super().learn(memory, outcome), "turns": turns}

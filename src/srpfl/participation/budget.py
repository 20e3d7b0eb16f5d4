"""Energy or data that is used up: a client does so many local updates, and then no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from srpfl.core.fields import check_fields
from srpfl.errors import ConfigError, whole
from srpfl.participation.base import Call, Memory, Outcome, Participation

USED = "budget used"  # in the memory, beside what the policy itself remembers: updates by client


@dataclass(frozen=True, kw_only=True)
class Budgeted:
    """Another policy, of whose clients each can be asked ``updates`` times. Then its energy or its
    data volume is used up, and it cannot be reached any more. An update that came too late has cost
    as much as one that counted.

    >>> from srpfl.participation import Everyone
    >>> policy = Budgeted(policy=Everyone(), updates=2)
    >>> policy.reachable({"budget used": {"0": 2, "1": 1}}, [0, 1, 2])
    [1, 2]
    """

    policy: Participation
    updates: int

    def __post_init__(self) -> None:
        check_fields(self)
        if whole("the budget", self.updates) < 1:
            raise ConfigError(f"a budget has at least one local update, not {self.updates}")

    @property
    def needs_fixed_speeds(self) -> bool:
        return self.policy.needs_fixed_speeds

    @property
    def wants_gradient(self) -> bool:
        return self.policy.wants_gradient

    @property
    def sees_communication(self) -> bool:
        return self.policy.sees_communication

    def begin(self, population: int) -> Memory:
        return {**self.policy.begin(population), USED: {}}

    def call(self, memory: Memory, round: int, population: int) -> Call:
        return self.policy.call(_own(memory), round, population)

    def choose(
        self, memory: Memory, call: Call, idle: Sequence[int], rng: np.random.Generator
    ) -> Sequence[int]:
        return self.policy.choose(_own(memory), call, idle, rng)

    def learn(self, memory: Memory, outcome: Outcome) -> Memory:
        used = dict(memory[USED])
        for client in outcome.asked:
            used[str(client)] = used.get(str(client), 0) + 1
        return {**self.policy.learn(_own(memory), outcome), USED: used}

    def reachable(self, memory: Memory, clients: Sequence[int]) -> list[int]:
        """Those of the clients whose budget is not used up."""
        used = memory[USED]
        return [client for client in clients if used.get(str(client), 0) < self.updates]

    def __getattr__(self, name: str) -> Any:
        """How late answers count, and how much work is dealt out, where the policy says so."""
        if name in ("credit", "effort", "compares"):
            return getattr(self.policy, name)
        raise AttributeError(name)


def _own(memory: Memory) -> Memory:
    return {name: value for name, value in memory.items() if name != USED}

"""What one client does between receiving a model and answering: phases of gradient steps.

A :class:`Plan` is data, so any engine can carry it out, one client after another or many as one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from srpfl.core.rules import Rule
from srpfl.errors import ConfigError, whole

MOST = 10_000_000  # epochs or steps of a phase; more is a slip of the keyboard


@dataclass(frozen=True)
class Phase:
    """Train some of the parameters, and keep all others as they are, for a while."""

    trains: frozenset[str]
    epochs: int | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        amount = self.epochs if self.steps is None else self.steps
        if (self.epochs is None) == (self.steps is None) or amount is None or amount < 0:
            raise ConfigError(
                "local work is a number of epochs or a number of steps, zero or more, not "
                f"epochs={self.epochs} and steps={self.steps}"
            )
        if whole("local work", amount) > MOST:
            raise ConfigError(f"local work is at most {MOST:,} epochs or steps, not {amount:,}")

    def step_count(self, samples: int, batch_size: int | None) -> int:
        """How many steps a client with that many samples takes."""
        if self.steps is not None:
            return self.steps
        return (self.epochs or 0) * math.ceil(samples / (batch_size or samples))


@dataclass(frozen=True)
class Plan:
    """Phases under one rule, with one optimiser state throughout; a client may have several."""

    phases: tuple[Phase, ...]
    rule: Rule
    batch_size: int | None = 10  # None: every step sees all of the client's samples
    slot: str | None = None  # trains the model, or a client's own slot in the place of the model
    keeps: tuple[str, ...] = ()  # own slots that become what the rule's state of that name ends as

    def __post_init__(self) -> None:
        if self.batch_size is not None and whole("the batch size", self.batch_size) < 1:
            raise ConfigError(f"the batch size must be at least 1, not {self.batch_size}")

    def step_count(self, samples: int) -> int:
        return sum(phase.step_count(samples, self.batch_size) for phase in self.phases)

    def sample_count(self, samples: int) -> int:
        """How many samples those steps process; a full epoch has no more than there are."""
        size = self.batch_size or samples
        total = 0
        for phase in self.phases:  # each begins an epoch of its own
            steps = phase.step_count(samples, self.batch_size)
            epochs, rest = divmod(steps, math.ceil(samples / size))
            total += epochs * samples + min(rest * size, samples)
        return total


def cut(plans: Sequence[Plan], samples: int, part: float) -> tuple[Plan, ...]:
    """The first part of the steps of a client with that many samples, at least one of them.

    >>> from srpfl.core.rules import SGD
    >>> both = (Phase(frozenset("h"), epochs=2), Phase(frozenset("b"), epochs=1))
    >>> [plan] = cut([Plan(both, SGD(), batch_size=10)], samples=40, part=0.75)
    >>> [phase.steps for phase in plan.phases]
    [8, 1]
    """
    left = max(1, math.floor(part * sum(plan.step_count(samples) for plan in plans) + 1e-9))
    shorter = []
    for plan in plans:
        phases = []
        for phase in plan.phases:
            steps = min(left, phase.step_count(samples, plan.batch_size))
            phases.append(replace(phase, epochs=None, steps=steps))
            left -= steps
        shorter.append(replace(plan, phases=tuple(phases)))
    return tuple(shorter)

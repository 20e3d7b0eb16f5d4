"""Oort: ask those whose data teach most, unless they are too slow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from srpfl.errors import ConfigError, number
from srpfl.participation.base import Call, Memory, Outcome, uniform
from srpfl.participation.selecting import FloatArray, Selecting, of, weighted


@dataclass(frozen=True, kw_only=True)
class Oort(Selecting):
    """Utility, exploration and a pacer (Lai et al., "Oort: efficient federated learning via guided
    participant selection", OSDI 2021, algorithm 1).

    A client's utility is U_i = #B_i·loss_i, cut at the 95th percentile and divided by it, plus
    √(0.1·ln R / L_i) for a client last heard in round L_i, times (T/t_i)^α if it takes longer than
    the preferred duration T. A share ε of those asked has never been heard; ε falls from
    ``exploration`` by ``decay`` a round to ``least``. The others are drawn by utility among the
    clients above 95 % of the last utility that would be taken.

    T is the ``pace``-th percentile of the times seen. The pacer raises it by ``step`` points
    whenever the utility won in the last ``window`` rounds is less than in those before. The paper
    has the root mean square of the samples' losses for loss_i; a server here sees their mean. It
    explores by speed where that is known of clients that were never heard, which it is not here,
    and can bar clients that were taken too often, which is left out.
    """

    exploration: float = 0.9
    decay: float = 0.98
    least: float = 0.2
    penalty: float = 2.0  # α
    pace: float = 30.0
    step: float = 5.0
    window: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("exploration", "decay", "least"):
            if not 0 <= number(name, getattr(self, name)) <= 1:
                raise ConfigError(f"{name} is a share from 0 to 1, not {getattr(self, name)}")
        if number("penalty", self.penalty) < 0:
            raise ConfigError(f"the penalty must be zero or more, not {self.penalty}")
        if not 0 <= number("pace", self.pace) <= 100 or number("step", self.step) < 0:
            raise ConfigError("pace is a percentile from 0 to 100, and step is zero or more")
        if self.window < 1:
            raise ConfigError(f"the window has at least one round, not {self.window}")

    def begin(self, population: int) -> Memory:
        return {**super().begin(population), "round": 0, "pace": self.pace, "won": []}

    def choose(
        self, memory: Memory, call: Call, idle: Sequence[int], rng: np.random.Generator
    ) -> Sequence[int]:
        round, seen = memory["round"], memory["seen"]
        share = max(self.least, self.exploration * self.decay**round)
        heard = [client for client in idle if "loss" in seen.get(str(client), {})]
        exploit = min(len(heard), call.ask - math.ceil(share * call.ask))
        if exploit <= 0:
            return uniform(call.ask, idle, rng)
        utility = self.utilities(memory, heard)
        last = np.sort(utility)[-exploit]
        good = [place for place, value in enumerate(utility) if value >= 0.95 * last]
        taken = weighted(exploit, [heard[place] for place in good], utility[good], rng)
        new = [client for client in idle if "loss" not in seen.get(str(client), {})]
        taken += uniform(call.ask - exploit, new, rng)
        rest = sorted(set(idle) - set(taken))  # nobody new is left
        return tuple(sorted([*taken, *uniform(call.ask - len(taken), rest, rng)]))

    def utilities(self, memory: Memory, clients: Sequence[int]) -> FloatArray:
        """Of clients that were heard."""
        seen = memory["seen"]
        value = of(seen, clients, "loss", 0.0) * of(seen, clients, "samples", 0.0)
        most = max(float(np.percentile(value, 95)), 1e-30)
        utility = np.clip(value, 0.0, most) / most
        # Rounds are counted from 1 here, as in the paper.
        heard = of(seen, clients, "round", 0.0) + 1
        utility = utility + np.sqrt(0.1 * math.log(memory["round"] + 1) / heard)
        times = np.maximum(of(seen, clients, "time", 0.0), 1e-30)
        preferred = np.percentile([each["time"] for each in seen.values()], memory["pace"])
        slow = times > preferred
        utility[slow] *= (preferred / times[slow]) ** self.penalty
        return utility

    def learn(self, memory: Memory, outcome: Outcome) -> Memory:
        won = sum(answer.loss * answer.samples for answer in outcome.answers)
        history = [*memory["won"], won][-2 * self.window :]
        pace = memory["pace"]
        if len(history) == 2 * self.window:
            before, after = sum(history[: self.window]), sum(history[self.window :])
            if before > after:
                pace = min(100.0, pace + self.step)
            history = history[self.window :]
        learnt = super().learn(memory, outcome)
        return {**learnt, "round": outcome.round + 1, "pace": pace, "won": history}

"""Wait for as many as pay, learnt from what the server sees."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from srpfl.errors import ConfigError, number, whole
from srpfl.participation._arrivals import Arrivals
from srpfl.participation._signal import Glance, Signal, Vector, look
from srpfl.participation.base import STAGE, Call, Memory, Outcome, Sampling, checked_start

OFF = 2.0  # a wait that was never seen may be so many times as long as it was guessed to be


@dataclass(frozen=True, kw_only=True)
class Auto(Sampling):
    """Choose n before every round such that the error falls fastest per unit of time.

    A round with n answers takes the wait for the n-th of them plus C, and lowers the squared error
    by what the expected update is worth less what noise adds, which falls like 1/n. Distance, pull,
    noise, waits and C are estimated from the answers and the times at which they came. Far from
    the optimum few answers are enough and waiting is waste; near it noise decides; and where C
    dwarfs the waiting, everyone is asked at once. n may also fall again.

    ``start`` is the number of answers that the first round waits for (a tenth of those asked).
    ``fewest`` is that which every round waits for (``start``, or a tenth if that is less).
    ``memory`` is how far the estimates look back, in units of the rounds in which the distance
    falls by a factor e. ``margin`` is the part of the speed that is given up to hear more clients,
    and the part of its length by which the first round, in which nothing is known yet, goes on
    after its ``start`` answers. ``patience``: one over it is the part of the time so far by which
    a wait may be longer than the longest that is known. Where clients differ from each other in
    the same way in every round, the answers of a few do not speak for the others, and as many are
    waited for as come within that part of the time so far. ``step`` is how many times as many
    answers the next larger n has.

    >>> policy = Auto(start=4)
    >>> policy.call(policy.begin(128), round=0, population=128)
    Call(ask=128, wait=4, stage=0, draw=0, deadline=None, grace=0.05)
    >>> choices(start=4, asked=32)
    [4, 6, 8, 11, 15, 16, 21, 24, 26, 28, 29, 30, 31, 32]
    """

    start: int | None = None
    memory: float = 4.0
    margin: float = 0.05
    patience: float = 10.0
    step: float = 1.4
    fewest: int | None = None

    sees_communication: ClassVar[bool] = True
    compares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= number("the memory", self.memory) < math.inf:
            raise ConfigError(f"the memory must be at least 1, not {self.memory}")
        if not 0 <= number("the margin", self.margin) < 1:
            raise ConfigError(f"the margin must be at least 0 and below 1, not {self.margin}")
        if not 1 <= number("the patience", self.patience) < math.inf:
            raise ConfigError(f"the patience must be at least 1, not {self.patience}")
        if self.fewest is not None and whole("the fewest answers", self.fewest) < 1:
            raise ConfigError(f"the fewest answers must be at least 1, not {self.fewest}")
        if not 1.01 <= number("the step", self.step) < math.inf:
            raise ConfigError(f"the step must be at least 1.01, not {self.step}")

    def begin(self, population: int) -> Memory:
        super().begin(population)
        return {"wait": checked_start(self.start, self.asked(population)), "stage": 0}

    def call(self, memory: Memory, round: int, population: int) -> Call:
        # n may stay for ever, and a sample must not.
        return Call(
            ask=self.asked(population),
            wait=memory["wait"],
            stage=memory["stage"],
            draw=self.drawn(round, round // STAGE),
            deadline=memory.get("deadline"),
            grace=0.0 if "signal" in memory else self.margin,
        )

    def learn(self, memory: Memory, outcome: Outcome) -> Memory:
        # A client that takes for ever does not answer.
        times = [answer.time for answer in outcome.answers if math.isfinite(answer.time)]
        if not times:
            return memory
        length = outcome.duration if math.isfinite(outcome.duration) else times[-1]
        return self.after(memory, look(outcome), times, outcome.call, length, outcome.communication)

    def after(
        self,
        memory: Memory,
        glance: Glance,
        times: Sequence[float],
        call: Call,
        length: float,
        communication: float,
    ) -> Memory:
        """The memory after a round, from the little that decisions depend on."""
        start, tenth = (checked_start(n, call.ask) for n in (self.start, None))
        ranks = choices(min(start, self.fewest or tenth), call.ask, self.step)
        spent = memory.get("spent", 0.0) + length + communication
        failed = memory.get("failed")
        if len(times) < call.wait:
            failed = {"heard": len(times), "after": max(length, call.deadline or 0.0)}
        elif failed and len(times) > failed["heard"]:
            failed = None
        tracked = sorted({1, *ranks})
        arrivals = Arrivals(call.ask, tracked, **memory.get("arrivals", {})).after(times)
        signal = Signal(**memory.get("signal", {})).after(glance, self.memory)
        place = glance.position + glance.update
        ranks = [rank for rank in ranks if rank > 1] or ranks  # one answer alone shows no spread
        ends = {rank: _given_up(rank, arrivals, failed) for rank in ranks[1:]}
        # What is risked is only the time beyond the longest wait that is known.
        known = arrivals.wait_for(max([ranks[0], *(n for n, end in ends.items() if not end)]))
        ranks = ranks[:1] + [n for n, end in ends.items() if end - known <= spent / self.patience]
        chosen, account = self.decide(signal, arrivals, place, ranks, communication, spent)
        end = ends.get(chosen, 0.0)
        return {
            "wait": chosen,
            "stage": memory["stage"] + (chosen != memory["wait"]),
            "deadline": end + self.margin * communication if end else None,
            "signal": asdict(signal),
            "arrivals": {"gaps": arrivals.gaps, "rounds": arrivals.rounds},
            "spent": spent,
            "failed": failed,
            "account": account,
        }

    def decide(
        self,
        signal: Signal,
        arrivals: Arrivals,
        position: Vector,
        ranks: Sequence[int],
        communication: float,
        spent: float,
    ) -> tuple[int, dict[str, Any]]:
        """n for the next round, and why."""
        pull, squared, noise = signal.pull, signal.squared(position), signal.variance
        n, lasting = signal.last_answers, signal.persistence * noise
        # (1 − α)² e + noise/n is the next squared error; e = squared / α². In units of the update:
        worth = (2 - pull) / pull

        def progress(wait: int) -> float:
            # What lasts is a pull towards the optimum of these clients and away from that of all.
            own = lasting * (1 / wait - 1 / ranks[-1])
            return worth * (squared - own) - (noise - lasting) / wait

        def duration(wait: int) -> float:
            return arrivals.wait_for(wait) + communication

        if not signal.freedom:
            chosen, why = ranks[0], "one answer alone shows no spread"
        elif progress(ranks[-1]) <= 0:
            chosen, why = ranks[-1], "all that is left is noise"
        else:
            speeds = {wait: progress(wait) / max(duration(wait), 1e-12) for wait in ranks}
            enough = (1 - self.margin) * max(speeds.values())
            chosen = max(wait for wait, speed in speeds.items() if speed >= enough)
            every = chosen == arrivals.asked
            why = _reason(chosen, n, every=every, noise=noise / n, gain=worth * squared)
        # Only hearing others helps against what lasts.
        cheap = [wait for wait in ranks if self.patience * duration(wait) <= spent]
        if lasting and cheap and chosen < cheap[-1]:
            chosen, why = cheap[-1], "these clients differ from the others, who cost little by now"
        account = {
            "signal": squared,
            "noise": noise,
            "lasting": signal.persistence,
            "pull": pull,
            "wait_chosen": arrivals.wait_for(chosen),
            "wait_all": arrivals.wait_for(ranks[-1]),
            "communication": communication,
            "chosen": chosen,
            "why": why,
        }
        return chosen, account


def choices(start: int, asked: int, step: float = 1.4) -> list[int]:
    """The numbers of answers considered: ``step`` times as many each time up to N/2, from there on
    with as many less missing to N."""
    found, n, missing = {start, asked}, float(start), asked / 2
    while n < asked / 2:
        found.add(round(n))
        n *= step
    while missing >= 1:
        found.add(asked - round(missing))
        missing /= step
    return sorted(n for n in found if n >= start)


def _given_up(rank: int, arrivals: Arrivals, failed: Mapping[str, Any] | None) -> float:
    """When a round that waits for so many ends at the latest; 0 where that wait is known."""
    heard, after = (failed["heard"], failed["after"]) if failed else (math.inf, 0.0)
    if rank <= min(arrivals.seen, heard):
        return 0.0
    # A wait that failed was longer than its deadline: the next one is longer, too.
    return OFF * max(arrivals.wait_for(rank), after if rank > heard else 0.0)


def _reason(chosen: int, n: int, *, every: bool, noise: float, gain: float) -> str:
    if chosen == n and every:
        return "everyone answers, and waiting for fewer would not be faster"
    if chosen == n:
        return "more answers would cost more time than they save"
    if chosen < n:
        return "fewer answers get as far in less time"
    if noise > gain / 2:
        return "noise eats the progress that so few answers make"
    return "waiting for more costs little"

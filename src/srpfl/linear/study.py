"""FedRep and SRPFL side by side on the linear problem, over one or several seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from srpfl.clock import Clock
from srpfl.linear.algorithm import method_of_moments
from srpfl.linear.problem import Problem
from srpfl.linear.run import LinearRun, run
from srpfl.participation import Doubling, Everyone, Participation

# Close to where the noise holds FedRep, and far enough that its fluctuations do not decide.
TARGET = 1.2


@dataclass(frozen=True)
class Pair:
    """Both methods on the same problem, with the same speeds, batches and initial B."""

    fedrep: LinearRun
    srpfl: LinearRun

    @property
    def target(self) -> float:
        """1.2 times FedRep's floor."""
        return TARGET * self.fedrep.floor


def compare(
    problem: Problem,
    *,
    clients: int | None = None,
    start: int,
    every: int,
    clock: Clock,
    eta: float,
    rounds: int,
    after_round: Callable[[], None] = lambda: None,
) -> Pair:
    """Run FedRep (all N) and SRPFL (n doubles from `start` after every `every` rounds).

    N is `clients`, sampled afresh in every round from the M of the problem; by default N = M.

    >>> from srpfl.clock import IIDExponential
    >>> pair = compare(Problem(clients=32, dim=5, rank=2, samples=10), start=4, every=10,
    ...                clock=IIDExponential(), eta=0.1, rounds=80)
    >>> pair.srpfl.time_to(pair.target) < pair.fedrep.time_to(pair.target)
    True
    """
    asked = problem.clients if clients is None else clients
    policies: list[Participation] = [
        Everyone(sample=asked),
        Doubling(sample=asked, start=start, every=every),
    ]
    for policy in policies:
        policy.begin(problem.clients)  # a wrong start is found before the method of moments' work
    initial = method_of_moments(problem)
    fedrep, srpfl = (
        run(
            problem,
            participation=policy,
            clock=clock,
            eta=eta,
            rounds=rounds,
            initial=initial,
            after_round=after_round,
        )
        for policy in policies
    )
    return Pair(fedrep, srpfl)


def mean_times(pairs: Sequence[Pair], communication: float) -> tuple[float | None, float | None]:
    """The times of FedRep and of SRPFL to the target, means over the seeds.

    None where a seed never gets there.
    """
    fedrep, srpfl = _times(pairs, communication)
    return _mean_time(fedrep), _mean_time(srpfl)


def spread_times(pairs: Sequence[Pair], communication: float) -> tuple[float, float]:
    """The standard deviations over the seeds of these times, of those that got there."""
    fedrep, srpfl = (
        pstdev([time for time in times if time is not None] or [0.0])
        for times in _times(pairs, communication)
    )
    return fedrep, srpfl


def _times(
    pairs: Sequence[Pair], communication: float
) -> tuple[list[float | None], list[float | None]]:
    return (
        [pair.fedrep.time_to(pair.target, communication) for pair in pairs],
        [pair.srpfl.time_to(pair.target, communication) for pair in pairs],
    )


def summary(pairs: Sequence[Pair], communication: float) -> dict[str, Any]:
    """What `srpfl linear --json` prints: means over the seeds, round by round where per round."""

    def of(runs: Sequence[LinearRun], time_to_target: float | None) -> dict[str, Any]:
        return {
            "floor": fmean(one.floor for one in runs),
            "time_to_target": time_to_target,
            "distance": np.mean([one.distance for one in runs], axis=0).tolist(),
            "time": np.mean([one.time(communication) for one in runs], axis=0).tolist(),
        }

    fedrep_time, srpfl_time = mean_times(pairs, communication)
    return {
        "target": fmean(pair.target for pair in pairs),
        "fedrep": of([pair.fedrep for pair in pairs], fedrep_time),
        "srpfl": of([pair.srpfl for pair in pairs], srpfl_time),
    }


def _mean_time(times: Sequence[float | None]) -> float | None:
    reached = [time for time in times if time is not None]
    return fmean(reached) if len(reached) == len(times) else None

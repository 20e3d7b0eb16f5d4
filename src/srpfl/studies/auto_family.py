"""The policies that Auto is measured against: each needs something tuned, or known in advance."""

from __future__ import annotations

import numpy as np

from srpfl.errors import ConfigError
from srpfl.linear import distance, head_spread
from srpfl.linear.problem import Array
from srpfl.participation import Deadline, Doubling, Everyone, FirstN, Participation
from srpfl.studies.auto_settings import Setting, SettingProblem
from srpfl.theory import Assumptions, contraction_parameter, optimal_schedule

STAGES = (5, 10, 20, 40, 80)  # rounds per stage of doubling
PARTS = (0.125, 0.25, 0.5, 0.75, 0.875)  # of the clients, first n
QUARTILES = (0.25, 0.5, 0.75)  # of the clients' times, deadlines
SEEN = 20  # rounds whose times give the quartiles


def family(setting: Setting, seed: int) -> dict[str, Participation]:
    """The members that do not depend on C, FedRep first.

    >>> list(family(Setting(clients=16), seed=0))[:3]
    ['fedrep', 'doubling-5', 'doubling-10']
    """
    times = np.stack([setting.times(seed, round) for round in range(SEEN)])
    members: dict[str, Participation] = {"fedrep": Everyone()}
    for every in STAGES:
        members[f"doubling-{every}"] = Doubling(start=setting.start, every=every)
    for part in PARTS:
        members[f"first-{part:g}"] = FirstN(n=max(1, round(part * setting.clients)))
    for part in QUARTILES:
        members[f"deadline-{part:g}"] = Deadline(seconds=float(np.quantile(times, part)))
    return members


def theory(
    setting: Setting, problem: SettingProblem, initial: Array, communication: float
) -> Participation:
    """The theory's schedule with the problem's own constants; FedRep where it has no stages."""
    smallest, _ = head_spread(problem.heads)
    away = distance(problem.representation, initial)
    a = contraction_parameter(setting.eta, initial_distance=away, sigma_min=smallest)
    try:
        return optimal_schedule(
            Assumptions(
                clients=setting.clients, start=setting.start, a=min(0.25, a), c=communication
            )
        )
    except ConfigError:
        return Everyone()

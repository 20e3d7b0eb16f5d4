"""How good the model is for each client. Never charged to the clock, never kept."""

from __future__ import annotations

import math

from torch import nn

from srpfl.algorithms.base import Algorithm, Evaluation
from srpfl.engine.base import Engine, Job
from srpfl.errors import ConfigError, unknown
from srpfl.local import Plan
from srpfl.population import PersonalParts
from srpfl.records import EvaluationRecord
from srpfl.rounds import State
from srpfl.split import combine, partition

KINDS: tuple[Evaluation, ...] = ("personalised", "global", "local")


def check_kinds(kinds: tuple[str, ...], algorithm: Algorithm) -> None:
    """Refuse an evaluation that the algorithm has no meaning for."""
    for kind in kinds:
        if kind not in KINDS:
            raise unknown("evaluation", kind, KINDS)
        if kind == "global" and algorithm.personalises:
            raise ConfigError(
                f"{type(algorithm).__name__} shares only a part of the model, so it has no global "
                "accuracy: evaluate 'personalised' or 'local'"
            )


def evaluate(
    kind: Evaluation,
    *,
    state: State,
    algorithm: Algorithm,
    model: nn.Module,
    engine: Engine,
    parts: PersonalParts,
    clients: int,
    seed: int,
) -> EvaluationRecord:
    """Accuracy of all clients, also of those that never took part."""
    everyone = range(clients)
    shared, plan = state.shared, Plan((), algorithm.rule)
    if kind == "personalised":
        # From the mean of the last participants' personal parts: it exists in a simulator only.
        common = combine(state.shared, parts.mean(state.participants))
        shared, start = partition(common, algorithm.adapts(model))
        personal, plan = [start] * clients, algorithm.tuning(model)
    elif kind == "global":
        personal, plan = [{}] * clients, algorithm.adaptation(model)
    else:
        personal = [parts.of(client) for client in everyone]
    job = Job(seed, state.round, f"evaluate/{kind}", everyone, shared, personal, plan)
    scores = sorted(engine.test(job), key=lambda score: score.client)
    tested = sum(score.total for score in scores)
    return EvaluationRecord(
        round=state.round,
        kind=kind,
        computing=state.computing,
        accuracy=math.fsum(score.correct for score in scores) / max(1, tested),
        clients=[score.correct / max(1, score.total) for score in scores],
        tested=[score.total for score in scores],
    )

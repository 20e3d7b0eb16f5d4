"""How good the model is for each client. Never charged to the clock, never kept."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import nn

from srpfl.algorithms.base import Algorithm, Evaluation
from srpfl.engine.base import Engine, Job, Score
from srpfl.errors import ConfigError, unknown
from srpfl.local import Plan
from srpfl.population import PersonalParts
from srpfl.records import EvaluationRecord
from srpfl.rounds import State
from srpfl.split import Params, combine, partition

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
    # From the mean of the last participants' personal parts: it exists in a simulator only.
    common = parts.mean(state.participants) if kind == "personalised" else {}
    shared, start, plan = preparation(kind, state.shared, common, algorithm, model)
    personal = [start] * clients
    if kind == "local":
        personal = [parts.of(client) for client in everyone]
    job = Job(seed, state.round, purpose(kind), everyone, shared, personal, plan)
    return summed(kind, state, engine.test(job))


def preparation(
    kind: Evaluation, shared: Params, part: Params, algorithm: Algorithm, model: nn.Module
) -> tuple[Params, Params, Plan]:
    """What a client does before it is tested, given its personal part or one in its stead: the
    part that stays as it is, the part that it adapts, and the plan."""
    if kind == "personalised":
        fixed, start = partition(combine(shared, part), algorithm.adapts(model))
        return fixed, start, algorithm.tuning(model)
    plan = algorithm.adaptation(model) if kind == "global" else Plan((), algorithm.rule)
    return shared, part, plan


def purpose(kind: Evaluation) -> str:
    """The name of an evaluation's random streams."""
    return f"evaluate/{kind}"


def default_kinds(algorithm: Algorithm) -> tuple[Evaluation, ...]:
    return (algorithm.headline, "local") if algorithm.personalises else (algorithm.headline,)


def summed(kind: Evaluation, state: State, scores: Sequence[Score]) -> EvaluationRecord:
    """The record of all clients' scores."""
    scores = sorted(scores, key=lambda score: score.client)
    tested = sum(score.total for score in scores)
    return EvaluationRecord(
        round=state.round,
        kind=kind,
        computing=state.computing,
        accuracy=math.fsum(score.correct for score in scores) / max(1, tested),
        clients=[score.correct / max(1, score.total) for score in scores],
        tested=[score.total for score in scores],
    )

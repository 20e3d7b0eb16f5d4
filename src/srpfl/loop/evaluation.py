"""How good the model is for each client. Never charged to the clock, never kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import nn

from srpfl.algorithms.base import Algorithm, Evaluation
from srpfl.core.devices import moved
from srpfl.core.plan import Plan
from srpfl.core.randomness import stream
from srpfl.core.split import Params, combine, partition
from srpfl.engine.base import Engine, Job, Score
from srpfl.errors import ConfigError, DivergedError, unknown
from srpfl.runs.records import KINDS, EvaluationRecord
from srpfl.runs.state import ClientParts, State
from srpfl.task import Task


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
    parts: ClientParts,
    clients: int,
    seed: int,
    task: Task,
    share: float | int = 1.0,
) -> EvaluationRecord:
    """The metric of all clients, also of those that never took part; or of a share of them, the
    same ones every time."""
    everyone = sample_of(clients, share, seed)
    if kind == "local":
        own = [own_of(client, state, algorithm, parts) for client in everyone]
    else:
        # From the mean of the last participants' personal parts: it exists in a simulator only.
        own = [parts.mean(state.participants) if kind == "personalised" else {}]
    shared, start, plan = preparation(kind, state.shared, own[0], algorithm, model)
    personal = own if kind == "local" else [start] * len(everyone)
    job = Job(seed, state.round, purpose(kind), everyone, shared, personal, (plan,))
    scores = engine.test([job])[0]
    record = record_of(kind, state, scores, task)
    if len(everyone) == clients:
        return record
    error = standard_error(scores, task, 1 - len(everyone) / clients)
    return replace(record, sample=list(everyone), error=error)


def own_of(client: int, state: State, algorithm: Algorithm, parts: ClientParts) -> Params:
    """What makes a client's own model of the shared part."""
    slots = {**algorithm.sends(state.server), **parts.slots_of(client)}
    here = {slot: moved(part, state.shared) for slot, part in slots.items()}
    return algorithm.own(state.shared, moved(parts.of(client), state.shared), here)


def sample_of(clients: int, share: float | int, seed: int) -> Sequence[int]:
    """The clients that a run tests: a fraction of them (a float) or a number (an int), drawn once.

    >>> sample_of(1000, 3, seed=0) == sample_of(1000, 0.003, seed=0)
    True
    """
    count = max(1, round(share * clients)) if isinstance(share, float) else share
    if count >= clients:
        return range(clients)
    drawn = stream(seed, "tested").choice(clients, size=count, replace=False)
    return [int(client) for client in np.sort(drawn)]


def standard_error(scores: Sequence[Score], task: Task, left: float) -> float:
    """The standard error of the metric by the jackknife, with the correction for a finite
    population of which ``left`` was not tested; 0 where it cannot be known from one client.

    >>> from srpfl.task import Classification
    >>> scores = [Score(client, (float(right),), 1.0) for client, right in enumerate([1, 0, 1, 1])]
    >>> round(standard_error(scores, Classification(), left=1.0), 3)  # the mean's: 0.5 / sqrt(4)
    0.25
    """
    tested = [score for score in scores if score.weight]
    if len(tested) < 2:
        return 0.0
    sums = np.array([score.sums for score in tested])
    weights = np.array([score.weight for score in tested])
    others, heavy = sums.sum(axis=0) - sums, weights.sum() - weights
    without = np.array(
        [
            task.value(row, weight)
            for row, weight in zip(others.tolist(), heavy.tolist(), strict=True)
        ]
    )
    return math.sqrt(left * (len(tested) - 1) * float(np.var(without)))


def preparation(
    kind: Evaluation, shared: Params, part: Params, algorithm: Algorithm, model: nn.Module
) -> tuple[Params, Params, Plan]:
    """What a client does before it is tested, given its personal part or one in its stead: the
    part that stays as it is, the part that it adapts, and the plan."""
    if kind == "personalised":
        stays, start = partition(combine(shared, part), algorithm.adapts(model))
        return stays, start, algorithm.tuning(model)
    plan = algorithm.adaptation(model) if kind == "global" else Plan((), algorithm.rule)
    # What is a client's own takes the place of what is shared.
    return {name: value for name, value in shared.items() if name not in part}, part, plan


def purpose(kind: Evaluation) -> str:
    """The name of an evaluation's random streams."""
    return f"evaluate/{kind}"


def default_kinds(algorithm: Algorithm) -> tuple[Evaluation, ...]:
    if algorithm.personalises and algorithm.headline != "local":
        return algorithm.headline, "local"
    return (algorithm.headline,)


def record_of(
    kind: Evaluation, state: State, scores: Sequence[Score], task: Task
) -> EvaluationRecord:
    """The record of all clients' scores."""
    scores = sorted(scores, key=lambda score: score.client)
    tested = [score for score in scores if score.weight]
    sums = [math.fsum(numbers) for numbers in zip(*(score.sums for score in tested), strict=True)]
    value = task.value(sums, math.fsum(score.weight for score in tested)) if tested else 0.0
    if not math.isfinite(value):
        raise DivergedError(
            f"the {kind} {task.metric} after round {state.round} is {value}: lower the learning "
            "rate, or check the task's score; the rounds before it are kept"
        )
    return EvaluationRecord(
        round=state.round,
        kind=kind,
        computing=state.computing,
        value=value,
        clients=[task.value(s.sums, s.weight) if s.weight else 0.0 for s in scores],
        weights=[score.weight for score in scores],
        metric=task.metric,
        higher_is_better=task.higher_is_better,
    )

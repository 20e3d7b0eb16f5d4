"""What a metric is over clients, when some of them may lie about their own, and what an answer
weighs.

weighted  by test samples, as in the simulator; a client weighs at most so many times the median
mean      every client alike: a false size gains nothing
trimmed   every client alike, without the best and the worst tenth
median    of the clients: half of them would have to lie
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median, median_low
from typing import Literal

from srpfl.engine.base import Score
from srpfl.participation.base import Answer
from srpfl.runs.records import EvaluationRecord

Judge = Literal["weighted", "mean", "trimmed", "median"]
JUDGES = ("weighted", "mean", "trimmed", "median")
TRIM = 0.1


def judged(record: EvaluationRecord, judge: Judge) -> EvaluationRecord:
    """The record with the value that the way of judging gives; what clients said stays."""
    if judge == "weighted":
        return record
    return replace(record, value=over_clients(record, judge))


def over_clients(record: EvaluationRecord, judge: Judge = "mean") -> float:
    """The metric over clients, each of them counted alike.

    >>> record = EvaluationRecord(1, "global", 0.0, 0.9, [0.5, 0.6, 1.0], [10, 10, 900])
    >>> round(over_clients(record), 3), over_clients(record, "median")
    (0.7, 0.6)
    """
    pairs = zip(record.clients, record.weights, strict=True)
    values = sorted(value for value, weight in pairs if weight > 0)
    if not values:
        return record.value
    if judge == "median":
        return median(values)
    cut = math.ceil(TRIM * len(values)) if judge == "trimmed" and len(values) > 2 else 0
    return fmean(values[cut : len(values) - cut])


def bounded(scores: Sequence[Score], factor: float) -> tuple[list[Score], list[int]]:
    """The scores, none of them heavier than so many times the median one; and who was lighter
    made. A client's own value stays what it is: sums and weight shrink alike.

    >>> bounded([Score(0, (1.0,), 2.0), Score(1, (3.0,), 3.0), Score(2, (4e6,), 4e6)], 10)[0][2]
    Score(client=2, sums=(30.0,), weight=30.0)
    """
    weights = [score.weight for score in scores if score.weight > 0]
    most = factor * median_low(weights) if weights else math.inf
    heavy = [score.client for score in scores if score.weight > most]
    return [_lighter(score, most) if score.weight > most else score for score in scores], heavy


def levelled(answers: Sequence[Answer], factor: float) -> tuple[list[Answer], list[int]]:
    """The answers, none of more samples than so many times the median one, as they may weigh by
    them; and whose were cut."""
    most = factor * median_low([answer.samples for answer in answers]) if answers else 0
    heavy = [answer.client for answer in answers if answer.samples > most]
    return [replace(each, samples=int(min(each.samples, most))) for each in answers], heavy


def _lighter(score: Score, most: float) -> Score:
    share = most / score.weight
    return replace(score, sums=tuple(number * share for number in score.sums), weight=most)

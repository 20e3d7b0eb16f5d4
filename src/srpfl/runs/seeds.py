"""Several seeds as one curve: their mean, and how far they lie apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from srpfl.runs.records import EvaluationRecord


@dataclass(frozen=True)
class MeanPoint:
    """The seeds after one round: mean time, mean value, and its standard deviation."""

    round: int
    time: float
    value: float
    spread: float


def mean_curve(
    seeds: Sequence[Sequence[EvaluationRecord]], communication: float
) -> list[MeanPoint]:
    """The mean over seeds, after each round that all of them evaluated."""
    by_round = [{record.round: record for record in records} for records in seeds]
    common = [round for round in by_round[0] if all(round in each for each in by_round)]
    found = []
    for round in common:
        records = [each[round] for each in by_round]
        values = [record.value for record in records]
        time = fmean(record.time(communication) for record in records)
        found.append(MeanPoint(round, time, fmean(values), pstdev(values)))
    return found

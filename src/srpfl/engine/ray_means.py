"""Means of actors' answers, and means of those: in a tree, so that no process receives from all.

Where nobody looks at single answers, an actor leaves out of them what the server would average, and
sends its mean beside them, in double precision. Actors put such means together, a few at a time,
until few are left for the process that plays the rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from srpfl.core.means import double_mean, weights_by
from srpfl.core.split import Params
from srpfl.engine.base import Job, Local

FAN = 8  # means that one process receives at a time
WORTH = 3  # answers from which on their mean, in double precision, is fewer bytes


class Mean(NamedTuple):
    """The mean of some answers to a job, and how much they count together."""

    weight: float
    value: Params


Means = dict[int, Mean]  # by number of the job


def taken_out(number: int, job: Job, answers: list[Local], least: int) -> tuple[list[Local], Means]:
    """Answers without what is in their mean, and that mean. Whole where they are few, or where the
    mean is no number, so that the client can be named who came to that."""
    if job.mean_by is None or len(answers) < least:
        return answers, {}
    weights = weights_by(job.mean_by, [answer.samples for answer in answers])
    mean = double_mean([answer.reply.shared for answer in answers], weights)
    if not all(bool(value.isfinite().all()) for value in mean.values()):
        return answers, {}
    light = [replace(each, reply=each.reply._replace(shared={})) for each in answers]
    return light, {number: Mean(sum(weights), mean)}


def put_together(found: Sequence[Means]) -> Means:
    """The means of all, from those of several actors."""
    together: Means = {}
    for number in sorted({number for each in found for number in each}):
        means = [each[number] for each in found if number in each]
        weights = [mean.weight for mean in means]
        value = double_mean([mean.value for mean in means], weights)
        together[number] = Mean(sum(weights), value)
    return together


def put_back(number: int, answers: Sequence[Local], means: Means) -> list[Local]:
    """The inverse of :func:`taken_out`, but for the mean in the place of each answer."""
    if number not in means:
        return list(answers)
    mean = means[number].value
    return [
        each if each.reply.shared else replace(each, reply=each.reply._replace(shared=mean))
        for each in answers
    ]

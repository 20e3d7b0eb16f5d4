"""What a policy that compares answers is shown where an algorithm makes them agree.

Control variates take out of an answer what sets its client apart. Who compares such answers finds
no difference between clients, however different they are. Their gradients at what was sent tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from srpfl.core.means import weighted_mean
from srpfl.core.split import Params
from srpfl.engine.base import GRADIENT
from srpfl.loop.transport import Updates
from srpfl.participation.base import Answer, Participation


def wants_gradient(algorithm: Updates, participation: Participation) -> bool:
    """Whether answers have to carry gradients."""
    given = participation.wants_gradient or algorithm.wants_gradient
    return given or hides_differences(algorithm, participation)


def hides_differences(algorithm: Updates, participation: Participation) -> bool:
    """Whether the policy compares answers, and the algorithm corrects them."""
    return bool(getattr(algorithm, "corrects", False) and getattr(participation, "compares", False))


def uncorrected(sent: Params, answers: Sequence[Answer]) -> list[Answer]:
    """The answers with a step along each client's own gradient in the place of its weights. The
    mean step is as long as the mean of the real ones."""
    gradients = [_among(sent, answer.sent[GRADIENT]) for answer in answers]
    even = [1.0] * len(answers)
    mean, moved = weighted_mean(gradients, even), weighted_mean([a.shared for a in answers], even)
    start = {name: sent[name].to(value.device) for name, value in mean.items()}
    length = _length(mean)
    scale = _length({name: moved[name] - start[name] for name in mean}) / length if length else 0.0
    return [
        replace(answer, shared={**answer.shared, **_step(start, gradient, scale)})
        for answer, gradient in zip(answers, gradients, strict=True)
    ]


def _among(sent: Params, gradient: Params) -> Params:
    return {name: value for name, value in gradient.items() if name in sent}


def _step(start: Params, gradient: Params, scale: float) -> Params:
    return {name: start[name] - scale * value for name, value in gradient.items()}


def _length(part: Params) -> float:
    return math.sqrt(sum(float(value.double().square().sum()) for value in part.values()))

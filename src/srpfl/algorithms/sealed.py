"""What a run that hides its clients shows of their answers: the mean once, nothing of a single one.

An algorithm that reads single answers, or takes the mean of some of them, would tell what the noise
was added to hide, and has nothing to read under masks. It is stopped with a sentence, also where a
user wrote it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from srpfl.core.slots import Slots
from srpfl.core.split import Params
from srpfl.errors import ConfigError


class Seal:
    """Around the answers of one round; it can be opened once."""

    def __init__(self, count: int) -> None:
        self.count, self.opened = count, False


class Sealed:
    """An answer that only the mean of all of them may read."""

    def __init__(self, answer: Any, seal: Seal) -> None:
        self._answer, self._seal = answer, seal

    @property
    def client(self) -> int:
        return int(self._answer.client)

    @property
    def samples(self) -> int:
        return int(self._answer.samples)

    @property
    def age(self) -> int:
        return int(self._answer.age)

    @property
    def credit(self) -> float:
        return float(self._answer.credit)

    @property
    def shared(self) -> Params:
        _refuse("reads single answers")

    @property
    def sent(self) -> Slots:
        _refuse("reads what clients send beside their weights")


def sealed(answers: Sequence[Any]) -> list[Sealed]:
    """The answers of a round, sealed together."""
    seal = Seal(len(answers))
    return [Sealed(answer, seal) for answer in answers]


def opened(answers: Sequence[Any]) -> list[Params]:
    """The weights in sealed answers, all of them and once; those in others as they are."""
    if not answers or not isinstance(answers[0], Sealed):
        return [answer.shared for answer in answers]
    seal = answers[0]._seal
    if seal.opened or len(answers) != seal.count:
        _refuse("averages more than once, or some of the answers only")
    seal.opened = True
    return [answer._answer.shared for answer in answers]


def _refuse(what: str) -> NoReturn:
    raise ConfigError(
        f"this algorithm {what}, so an average does not hide a client: use one that needs "
        "only the mean of all answers, such as FedAvg, FedRep or FedAdam"
    )


class Shown:
    """What a policy may see of an answer: when it came, and weights that stand for the mean."""

    def __init__(self, answer: Any, shared: Params | None) -> None:
        self.client, self.time = answer.client, answer.time
        self.samples, self.sent, self._shared = answer.samples, dict[str, Params](), shared

    @property
    def shared(self) -> Params:
        if self._shared is None:
            raise ConfigError(
                "this policy looks at the weights of single answers, which secure sums do not "
                "show: use one that looks at times, such as Doubling"
            )
        return self._shared

    @property
    def loss(self) -> float:
        raise ConfigError(
            "this policy looks at the losses of single clients, which this run does not show: "
            "use one that looks at times or at the model, such as Doubling or Auto"
        )


def shown(answers: Sequence[Any], sent: Params, after: Params, spread: float | None) -> list[Any]:
    """Answers for a policy that estimates mean and spread from them: their mean is the model that
    everyone gets, and their variance the largest that clipping and noise allow. Both are known
    without looking at a client, so what a policy makes of them tells nothing more. Where nobody
    knows their spread, they have no weights."""
    if spread is None:
        return [Shown(answer, None) for answer in answers]
    count = len(answers)
    even = count - count % 2
    side = math.sqrt(spread * (count - 1) / even) if even else 0.0
    names = [name for name, value in sent.items() if value.is_floating_point()]
    numbers = sum(sent[name].numel() for name in names)
    step = side / math.sqrt(max(1, numbers))
    found = []
    for place, answer in enumerate(answers):
        sign = 0 if place >= even else 1 - 2 * (place % 2)
        moved = {name: torch.add(after[name], sign * step) for name in names}
        found.append(Shown(answer, {**after, **moved}))
    return found

"""An average for which the sum of all answers is enough: all that a secure sum tells a server."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from srpfl.algorithms.private import Private
from srpfl.core.split import Params
from srpfl.errors import ConfigError, DivergedError

FRACTION = 32  # bits behind the point; sums below 2^20 are then exact in doubles
LARGEST = 2.0 ** (62 - FRACTION)  # of a number: so large that sums of two still fit
SUM = "sum"  # what an answer calls its masked numbers
FEWEST = 2  # answers: the sum of one is that answer
FINEST = 2.0 ** (10 - FRACTION)  # deviation of noise: a thousand steps, so that it is still normal


@dataclass(frozen=True)
class Secure:
    """The mean as a secure sum gives it: updates in whole multiples of 2^-32, so that masks modulo
    2^64 cancel without a trace. A simulation has the same numbers as a deployment, without masks;
    see srpfl.privacy.secure for those."""

    def __call__(self, sent: Params, parts: Sequence[Params], weights: Sequence[float]) -> Params:
        if len(set(weights)) > 1:
            raise ConfigError("secure sums weigh all answers alike: use weighting='uniform'")
        return self.moved(sent, torch.stack(self.addends(sent, parts)).sum(0), len(parts))

    def addends(self, sent: Params, parts: Sequence[Params]) -> list[Tensor]:
        """What each client adds to the sum."""
        return [self.update(sent, part) for part in parts]

    def update(self, sent: Params, part: Params) -> Tensor:
        """What a client adds to the sum: its change of each number, in fixed point."""
        return fixed_point(_joined({n: part[n].double() - v.double() for n, v in sent.items()}))

    def vector(self, sent: Params, part: Params, loss: float, answers: int) -> Tensor:
        """All that a client adds in a deployment, where at least so many answers will count: its
        loss is as much its own."""
        return torch.cat([self.update(sent, part), fixed_point(torch.tensor([loss]))])

    def fewest(self, wait: int, threshold: int) -> int:
        """How many must count before members reveal anything."""
        return threshold

    @property
    def terms(self) -> str:
        """What both sides must agree on beside the form of answers."""
        return ""

    def summed(self, sent: Params, total: Tensor, count: int) -> tuple[list[Params], float]:
        """Answers that stand for so many of which only the sum is known, and their mean loss. The
        first one has all of the change, which doubles hold exactly; nobody may look at one."""
        first = _added(sent, total[:-1].double() / 2.0**FRACTION)
        return [first, *[sent] * (count - 1)], float(total[-1]) / 2.0**FRACTION / count

    def moved(self, sent: Params, total: Tensor, count: int) -> Params:
        """The model after so many answers with this sum."""
        found = _added(sent, (total.double() / 2.0**FRACTION) / count)
        kinds = {name: value.dtype for name, value in sent.items()}
        return {
            n: (v if kinds[n].is_floating_point else v.round()).to(kinds[n])
            for n, v in found.items()
        }

    def most(self, wait: int) -> int:
        """How many may be asked where so many answers count: masks can be taken off only if more
        than half of those who made them are left."""
        if wait < FEWEST:
            raise ConfigError(
                f"a secure sum of {wait} answer hides nothing: wait for at least {FEWEST}"
            )
        return 2 * wait - 1

    def spread(self, sent: Params, answers: int) -> float | None:
        """How much answers vary is known to nobody."""
        return None

    def secret(self) -> Secure:
        """As real clients may trust it: in a deployment they mask what they send."""
        return self


@dataclass(frozen=True)
class SecurePrivate(Secure):
    """A secure sum of clipped updates, each with its n-th part of the noise (as Kairouz et al.,
    2021): nobody sees an answer, and what the sum tells of one is bounded.

    An update goes to fixed point towards zero, so its norm stays below S, and noise on its own, so
    that it does not depend on the update. With ``key=None``, in a deployment, nodes draw from their
    system's randomness and a server adds nothing to it.
    """

    clip: float = 1.0  # S
    noise: float = 1.0  # z
    key: int | None = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        _ = self.private  # which checks the numbers

    @property
    def private(self) -> Private:
        return Private(self.clip, self.noise, key=self.key)

    def addends(self, sent: Params, parts: Sequence[Params]) -> list[Tensor]:
        if self.key is None:
            return super().addends(sent, parts)
        return [self.noisy(sent, part, len(parts), place) for place, part in enumerate(parts)]

    def noisy(self, sent: Params, part: Params, answers: int, place: int = 0) -> Tensor:
        """What a client adds to the sum of so many."""
        share = self.noise * self.clip / math.sqrt(answers)
        if 0 < share < FINEST:
            raise ConfigError(f"noise of {share:.2g} is lost in fixed point: use a larger clip")
        still = {n: torch.zeros_like(v, dtype=torch.float64) for n, v in sent.items()}
        update = {**still, **self.private.clipped(sent, part)}
        noise = {**still, **self.private.drawn(sent, answers, place)}
        return fixed_point(_joined(update), torch.trunc) + fixed_point(_joined(noise))

    def vector(self, sent: Params, part: Params, loss: float, answers: int) -> Tensor:
        """The loss stays at home: nothing bounds what it tells."""
        return torch.cat([self.noisy(sent, part, answers), torch.zeros(1, dtype=torch.long)])

    def fewest(self, wait: int, threshold: int) -> int:
        """With fewer answers there would be less noise than was promised."""
        return wait

    @property
    def terms(self) -> str:
        return f"clip {self.clip!r}, noise {self.noise!r}"

    def spread(self, sent: Params, answers: int) -> float | None:
        return self.private.spread(sent, answers)

    def secret(self) -> SecurePrivate:
        return replace(self, key=None)


def fixed_point(values: Tensor, whole: Callable[[Tensor], Tensor] = torch.round) -> Tensor:
    """Numbers as whole multiples of 2^-32: their sums are exact in any order.

    >>> fixed_point(torch.tensor([0.5, -1.25])) / 2**FRACTION
    tensor([ 0.5000, -1.2500])
    """
    if not bool((values.abs() < LARGEST).all()):
        raise DivergedError(
            "an update is not finite, or too large for secure sums: lower the learning rate"
        )
    return whole(values.double() * 2.0**FRACTION).long()


def _added(sent: Params, change: Tensor) -> Params:
    """The model with a change to all of its numbers, in doubles."""
    names = sorted(sent)
    pieces = torch.split(change, [sent[name].numel() for name in names])
    return {
        name: sent[name].double() + piece.reshape(sent[name].shape)
        for name, piece in zip(names, pieces, strict=True)
    }


def _joined(values: Params) -> Tensor:
    return torch.cat([_flat(values[name]) for name in sorted(values)])


def _flat(value: Tensor) -> Tensor:
    return value.double().reshape(-1)

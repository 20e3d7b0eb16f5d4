"""An average for which the sum of all answers is enough: all that a secure sum tells a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from srpfl.core.split import Params
from srpfl.errors import ConfigError, DivergedError

FRACTION = 32  # bits behind the point; sums below 2^20 are then exact in doubles
LARGEST = 2.0 ** (62 - FRACTION)  # of a number: so large that sums of two still fit
SUM = "sum"  # what an answer calls its masked numbers
FEWEST = 2  # answers: the sum of one is that answer


@dataclass(frozen=True)
class Secure:
    """The mean as a secure sum gives it: updates in whole multiples of 2^-32, so that masks modulo
    2^64 cancel without a trace. A simulation has the same numbers as a deployment, without masks;
    see srpfl.privacy.secure for those."""

    def __call__(self, sent: Params, parts: Sequence[Params], weights: Sequence[float]) -> Params:
        if len(set(weights)) > 1:
            raise ConfigError("secure sums weigh all answers alike: use weighting='uniform'")
        total = torch.stack([self.update(sent, part) for part in parts]).sum(0)
        return self.moved(sent, total, len(parts))

    def update(self, sent: Params, part: Params) -> Tensor:
        """What a client adds to the sum: its change of each number, in fixed point."""
        return fixed_point(torch.cat([_flat(part[n]) - _flat(sent[n]) for n in sorted(sent)]))

    def vector(self, sent: Params, part: Params, loss: float) -> Tensor:
        """All that a client adds in a deployment: its loss is as much its own."""
        return torch.cat([self.update(sent, part), fixed_point(torch.tensor([loss]))])

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

    def spread(self, sent: Params, answers: int) -> None:
        """How much answers vary is known to nobody."""

    def secret(self) -> Secure:
        """As real clients may trust it: in a deployment they mask what they send."""
        return self


def fixed_point(values: Tensor) -> Tensor:
    """Numbers as whole multiples of 2^-32: their sums are exact in any order.

    >>> fixed_point(torch.tensor([0.5, -1.25])) / 2**FRACTION
    tensor([ 0.5000, -1.2500])
    """
    if not bool((values.abs() < LARGEST).all()):
        raise DivergedError(
            "an update is not finite, or too large for secure sums: lower the learning rate"
        )
    return (values.double() * 2.0**FRACTION).round().long()


def _added(sent: Params, change: Tensor) -> Params:
    """The model with a change to all of its numbers, in doubles."""
    names = sorted(sent)
    pieces = torch.split(change, [sent[name].numel() for name in names])
    return {
        name: sent[name].double() + piece.reshape(sent[name].shape)
        for name, piece in zip(names, pieces, strict=True)
    }


def _flat(value: Tensor) -> Tensor:
    return value.double().reshape(-1)

"""What a round asks of its clients, as a clock counts it: steps, samples, bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from srpfl.algorithms.base import Algorithm, Portion, expected_reply
from srpfl.clock.base import IntArray, Work
from srpfl.core.slots import Slots, packed
from srpfl.core.split import Params, Split
from srpfl.loop.transport import Request


@dataclass(frozen=True)
class Costs:
    """What an algorithm's messages weigh, and what part of the work each client has."""

    answer: int = 0  # bytes
    gradient: int = 0  # bytes, where it is wanted
    portion: Callable[[Params, Slots, int], Portion] | None = None  # None: all have all of it

    @classmethod
    def of(cls, algorithm: Algorithm, parts: Split) -> Costs:
        """The costs of an algorithm on a model."""
        usual = type(algorithm).portion is Algorithm.portion
        return cls(
            answer=bytes_of(expected_reply(algorithm, parts)),
            gradient=bytes_of(parts.trained),
            portion=None if usual else algorithm.portion,
        )

    def work(self, request: Request, steps: IntArray, samples: IntArray) -> Work:
        """For the clients that are asked, in their order."""
        down = bytes_of(packed(request.shared, request.server))
        up = self.answer + (self.gradient if request.wants_gradient else 0)
        if self.portion is None:
            return Work(steps, samples, down=down, up=up)
        each = [self.portion(request.shared, request.server, i) for i in request.asked]
        share, downs, ups = np.array(each, dtype=np.float64).T
        return Work(steps, samples, *(_rounded(downs * down), _rounded(ups * up)), share)


def bytes_of(params: Params) -> int:
    """What tensors weigh when they are sent."""
    return sum(value.numel() * value.element_size() for value in params.values())


def _rounded(bytes: np.ndarray) -> IntArray:
    whole: IntArray = np.rint(bytes).astype(np.int64)
    return whole

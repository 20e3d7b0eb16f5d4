"""What the answers of a round say: how far there is to go, and how much of it is noise.

Near an optimum x* an algorithm with a constant step pulls the model back by a fraction α of its
distance in every round, and the mean of n answers does so up to noise:

    u_t = −α (x_t − x*) + ε_t,    E‖ε_t‖² = noise / n

Every past update is therefore a noisy sighting of x*, whatever n was at the time. Put together,
each corrected by α for how far the model has moved since, they give the expected update where the
model is now; that they give it only up to noise / (answers so far) is counted as distance that
nobody has ruled out yet. Averages of ‖u_t‖² alone cannot tell this: with a few answers noise
drowns them, and near the floor the model's own error is made of the noise that they average.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srpfl.core.randomness import stream

if TYPE_CHECKING:
    from srpfl.participation.base import Outcome

Vector = NDArray[np.float64]

SKETCH = 256  # numbers kept of a vector; inner products are then right to 1/√256 of the lengths
STACKED = 2**24  # numbers of stacked answers held at once

# Before there is evidence: a tenth of the way per round. It weighs as much as positions that differ
# by the noise of so many answers do.
USUAL_PULL, USUAL_WEIGHT = 0.1, 3.0
MOST_PULL = 0.9
UNSEEN = 10  # a pull below one over the rounds so far, and these, has not shown itself yet
TINY = 1e-200  # where updates have no length
FEW = 5.0  # the rounds that it takes to believe that differences last
CHANCE = 0.2  # less than this cannot be told from chance within some tens of rounds
COMPARED = 20  # rounds over which updates are compared with the next
FEEDBACK = 0.25  # the part of the noise's feedback that is taken off the slope
EXACT = 1e-6  # answers are not believed more closely than this, in squared lengths of an update


@dataclass(frozen=True)
class Glance:
    """One round's answers, in few numbers."""

    answers: int  # n
    update: Vector  # the mean update, sketched
    position: Vector  # the model that was sent, sketched
    spread: float | None  # the answers' variance, summed over all coordinates; None for n = 1


@dataclass(frozen=True)
class Signal:
    """What is remembered of all rounds: sums that forget. JSON values.

    A round weighs w = n / (its answers' variance): what is known from it, next to its noise.
    """

    rounds: int = 0
    weight: float = 0.0  # Σ w
    update: Sequence[float] = ()  # Σ w·u
    position: Sequence[float] = ()  # Σ w·x
    turned: float = 0.0  # Σ w·⟨u, x⟩
    length: float = 0.0  # Σ w·‖x‖²
    carried: float = 0.0  # what all past noise still is of the position, in rounds
    feedback: float = 0.0  # Σ w·carried
    noise: float = 0.0  # Σ (n − 1)·ln variance of the answers
    freedom: float = 0.0  # Σ (n − 1)
    changed: float = 0.0  # Σ noise seen from one round to the next, over noise among the answers
    repeats: float = 0.0  # the rounds in which it was seen
    last: Sequence[float] = ()  # the last round's u
    last_answers: int = 0

    def after(self, glance: Glance, memory: float) -> Signal:
        """What is remembered after one more round.

        ``memory`` is in units of 1/α rounds, in which the model forgets where it was: sightings
        from long before that are sound only if the pull is the same in all directions. Noise falls
        with the distance, twice as fast as that, so only a short past speaks for it.
        """
        pull, x, u = self.pull, glance.position, glance.update
        keep, recent = 1 - pull / memory, max(0.0, 1 - 4 * pull)
        freedom = 0 if glance.spread is None else glance.answers - 1
        size = float(u @ u)
        spread = glance.spread if glance.spread is not None else self.variance or size
        spread = max(spread, EXACT * size, TINY)
        weight = glance.answers / spread
        return Signal(
            rounds=self.rounds + 1,
            weight=keep * self.weight + weight,
            update=_plus(self.update, keep, weight, u),
            position=_plus(self.position, keep, weight, x),
            turned=keep * self.turned + weight * float(u @ x),
            length=keep * self.length + weight * float(x @ x),
            feedback=keep * self.feedback + weight * self.carried,
            carried=1 + (1 - pull) * self.carried,
            noise=recent * self.noise + freedom * math.log(spread),
            freedom=recent * self.freedom + freedom,
            **self._changes(glance, spread),
            last=u.tolist(),
            last_answers=glance.answers,
        )

    def _changes(self, glance: Glance, spread: float) -> dict[str, float]:
        """u_t+1 − (1 − α) u_t holds the noise of the two rounds and nothing else."""
        if glance.answers != self.last_answers or glance.spread is None:
            return {"changed": self.changed, "repeats": self.repeats}
        keep, left = 1 - 1 / COMPARED, 1 - self.pull
        step = glance.update - left * np.asarray(self.last)
        fresh = float(step @ step) * glance.answers / ((1 + left**2) * spread)
        return {"changed": keep * self.changed + fresh, "repeats": keep * self.repeats + 1}

    @property
    def variance(self) -> float:
        """How far a single answer is from the mean of all, squared: the geometric mean of late, so
        that a round with one wild answer does not decide."""
        return math.exp(self.noise / self.freedom) if self.freedom else 0.0

    @property
    def persistence(self) -> float:
        """The part of the answers' differences that comes back in every round, from 0 to 1.

        The same clients with data of their own differ in the same way each time; no number of
        rounds with them averages that out. Other clients in every round, or fresh data: 0.
        """
        seen = 1 - (self.changed + FEW) / (self.repeats + FEW)
        return max(0.0, seen - CHANCE) / (1 - CHANCE)

    @property
    def pull(self) -> float:
        """α: the part of its distance that the model loses in a round.

        It is the slope of updates over positions. Noise moves the later positions too, against
        which it is held, so the slope is steeper than the pull: a part of that is taken off. All
        of it would leave too little in the end, and a pull too small keeps n small for ever.
        """
        if not self.weight:
            return USUAL_PULL
        at, u = np.asarray(self.position), np.asarray(self.update)
        moved = max(0.0, self.length - float(at @ at) / self.weight)
        against = float(u @ at) / self.weight - self.turned
        fed = FEEDBACK * self.feedback / self.weight
        found = (against - fed + USUAL_WEIGHT * USUAL_PULL) / (moved + USUAL_WEIGHT)
        return min(MOST_PULL, max(1 / (self.rounds + UNSEEN), found))

    def squared(self, position: Vector) -> float:
        """‖expected update‖² at this position, with what has not been ruled out."""
        at = np.asarray(self.position) / self.weight
        here = np.asarray(self.update) / self.weight + self.pull * (at - position)
        return float(here @ here) + 1 / self.weight


def look(outcome: Outcome) -> Glance:
    """What a round's answers say, at the cost of one pass over them."""
    names = sorted(name for name, value in outcome.sent.items() if value.is_floating_point())
    sent = [outcome.sent[name] for name in names]
    count, squares = len(outcome.answers), 0.0
    mean = []
    for name in names:
        # Answers may be on a device, where what was sent to them is not.
        origin = outcome.sent[name].to(outcome.answers[0].shared[name].device)
        total = torch.zeros_like(origin, dtype=torch.float64)
        for stacked in _stacks([answer.shared[name] for answer in outcome.answers]):
            updates = (stacked - origin).double()
            total += updates.sum(0)
            squares += float(updates.square().sum())
        mean.append(total / count)
    length = sum(float(part.square().sum()) for part in mean)
    spread = max(0.0, squares - count * length) / (count - 1) if count > 1 else None
    return Glance(count, sketch(mean), sketch(sent), spread)


def _stacks(values: Sequence[Tensor]) -> Iterator[Tensor]:
    size = max(1, STACKED // max(1, values[0].numel()))
    for first in range(0, len(values), size):
        yield torch.stack(list(values[first : first + size]))


def sketch(parts: Sequence[Tensor]) -> Vector:
    """The tensors as one short vector whose inner products are theirs, on average over signs.

    Coordinates get a random sign and are dealt out to 256 sums. Up to 256 are kept as they are.

    >>> sketch([torch.tensor([1.0, 2.0]), torch.tensor([[3.0]])]).tolist()
    [1.0, 2.0, 3.0]
    """
    flat = torch.cat([part.detach().double().flatten() for part in parts])
    if len(flat) > SKETCH:
        missing = -len(flat) % SKETCH
        signed = flat * _signs(len(flat)).to(flat.device)
        flat = torch.nn.functional.pad(signed, (0, missing)).view(-1, SKETCH).sum(0)
    return np.asarray(flat.cpu().numpy())


@lru_cache(maxsize=2)
def _signs(size: int) -> Tensor:
    # The same signs in every run: they are part of the method, not of an experiment.
    return torch.from_numpy(stream(0, "sketch").integers(2, size=size) * 2.0 - 1.0)


def _plus(old: Sequence[float], keep: float, weight: float, new: Vector) -> list[float]:
    before = np.asarray(old) if len(old) else np.zeros_like(new)
    return [float(value) for value in keep * before + weight * new]

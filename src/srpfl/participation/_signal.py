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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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

# Before there is evidence: a tenth of the way per round. It weighs as much as so many rounds.
USUAL_PULL, USUAL_WEIGHT = 0.1, 100.0
LEAST_PULL, MOST_PULL = 0.06, 0.5
COMPARED = 100  # rounds over which updates are compared with the next: the pull changes slowly
FEW = 5.0  # the rounds that it takes to believe that differences last

# Less persistence than this cannot be told from chance within a memory of some tens of rounds.
CHANCE = 0.2


@dataclass(frozen=True)
class Glance:
    """One round's answers, in few numbers."""

    answers: int  # n
    update: Vector  # the mean update, sketched
    position: Vector  # the model that was sent, sketched
    spread: float | None  # the answers' variance, summed over all coordinates; None for n = 1


@dataclass(frozen=True)
class Signal:
    """What is remembered of all rounds: sums that forget, and the last round. JSON values."""

    weight: float = 0.0  # Σ n
    update: Sequence[float] = ()  # Σ n·u
    position: Sequence[float] = ()  # Σ n·x
    noise: float = 0.0  # Σ (n − 1)·variance of the answers
    freedom: float = 0.0  # Σ (n − 1)
    kept: float = 0.0  # Σ of what is left of the last round's update, and of the update itself:
    moved: float = 0.0  # their ratio is 1 − α
    changed: float = 0.0  # Σ noise seen from one round to the next, over noise among the answers
    repeats: float = 0.0  # the rounds in which it was seen
    last: Sequence[float] = ()  # the last round's u
    last_answers: int = 0

    def after(self, glance: Glance, memory: float) -> Signal:
        """What is remembered after one more round.

        ``memory`` is in units of 1/α rounds, in which the model forgets where it was: sightings
        from long before that are sound only if the pull is the same in all directions.
        """
        keep, n = 1 - self.pull / memory, glance.answers
        freedom = n - 1 if glance.spread is not None else 0
        grown = replace(
            self,
            weight=keep * self.weight + n,
            update=_plus(self.update, keep, n, glance.update),
            position=_plus(self.position, keep, n, glance.position),
            noise=keep * self.noise + freedom * (glance.spread or 0.0),
            freedom=keep * self.freedom + freedom,
            last=glance.update.tolist(),
            last_answers=n,
        )
        return grown._compared(np.asarray(self.last), self.last_answers)

    def _compared(self, before: Vector, answers: int) -> Signal:
        """With the last two updates compared: E⟨u_t, u_t+1⟩ = (1 − α)·E‖u_t‖² − noise / n_t."""
        if not answers or not self.freedom:
            return self
        now, length, noise = np.asarray(self.last), float(before @ before), self.variance
        scale = length + noise / answers
        if not scale:
            return self
        keep, left = 1 - 1 / COMPARED, float(before @ now) + self.fresh / answers
        grown = replace(
            self,
            kept=keep * self.kept + left / scale,
            moved=keep * self.moved + length / scale,
        )
        if answers != self.last_answers or not noise:
            return grown
        # u_t+1 − (1 − α) u_t holds the noise of the two rounds and nothing else.
        step = now - (1 - grown.pull) * before
        return replace(
            grown,
            changed=keep * self.changed + float(step @ step) * answers / (2 * noise),
            repeats=keep * self.repeats + 1,
        )

    @property
    def variance(self) -> float:
        """How far a single answer is from the mean of all, squared."""
        return self.noise / self.freedom if self.freedom else 0.0

    @property
    def pull(self) -> float:
        """α: the part of its distance that the model loses in a round."""
        left = (self.kept + USUAL_WEIGHT * (1 - USUAL_PULL)) / (self.moved + USUAL_WEIGHT)
        return min(MOST_PULL, max(LEAST_PULL, 1 - left))

    @property
    def persistence(self) -> float:
        """The part of the answers' differences that comes back in every round, from 0 to 1.

        The same clients with data of their own differ in the same way each time; no number of
        rounds with them averages that out. Other clients in every round, or fresh data: 0.
        """
        seen = 1 - (self.changed + FEW) / (self.repeats + FEW)
        return max(0.0, seen - CHANCE) / (1 - CHANCE)

    @property
    def fresh(self) -> float:
        """The part of the variance that is drawn again in every round."""
        return (1 - self.persistence) * self.variance

    def squared(self, position: Vector) -> float:
        """‖expected update‖² at this position, with what has not been ruled out."""
        at = np.asarray(self.position) / self.weight
        here = np.asarray(self.update) / self.weight + self.pull * (at - position)
        return float(here @ here) + self.fresh / self.weight


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

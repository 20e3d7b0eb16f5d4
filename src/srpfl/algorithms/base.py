"""What an algorithm is: a split of the model, a plan of local work, and an average.

Nothing here knows of stragglers, clocks or engines. A new algorithm states what is personal and
what a participant trains; FedRep's file shows how little that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor, nn

from srpfl.errors import ConfigError
from srpfl.local import SGD, Phase, Plan, Rule
from srpfl.split import (
    Params,
    Personal,
    Predicate,
    check_ties,
    last_linear,
    nothing,
    predicate,
)

if TYPE_CHECKING:
    from srpfl.rounds import Answer

Evaluation = Literal["personalised", "global", "local"]


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """The part that algorithms have in common."""

    rule: Rule = SGD()
    batch_size: int = 10
    weighting: Literal["uniform", "samples"] = "uniform"
    tuning_epochs: int = 10  # evaluation trains the personal part for that long

    headline: ClassVar[Evaluation] = "personalised"
    personalises: ClassVar[bool] = True  # needs a shared and a personal part, both non-empty

    def __post_init__(self) -> None:
        if self.weighting not in ("uniform", "samples"):
            raise ConfigError(f"weighting must be 'uniform' or 'samples', not '{self.weighting}'")

    def is_personal(self, model: nn.Module) -> Predicate:
        """Which names stay with the client."""
        raise NotImplementedError

    def phases(self, shared: frozenset[str], personal: frozenset[str]) -> tuple[Phase, ...]:
        """What a participant trains, given the names of the two parts' parameters."""
        raise NotImplementedError

    def adapts(self, model: nn.Module) -> Predicate:
        """Which names evaluation trains for each client: the personal part."""
        return self.is_personal(model)

    def plan(self, model: nn.Module) -> Plan:
        """The local work of a participant. Frozen parameters (``requires_grad=False``) belong to
        a part like all others, but nobody trains them."""
        is_personal = self.is_personal(model)
        check_ties(model, is_personal)
        names = frozenset(name for name, _ in model.named_parameters())
        personal = frozenset(name for name in names if is_personal(name))
        if self.personalises and (not personal or personal == names):
            what = "nothing" if not personal else "everything"
            raise ConfigError(
                f"the split makes {what} personal, but {type(self).__name__} needs a shared and a "
                "personal part: name the personal part, for example personal=['fc3']"
            )
        free = trainable(model)
        phases = self.phases((names - personal) & free, personal & free)
        return Plan(phases, self.rule, self.batch_size)

    def tuning(self, model: nn.Module) -> Plan:
        """What evaluation does for each client before it tests."""
        adapts = self.adapts(model)
        check_ties(model, adapts)
        names = frozenset(filter(adapts, trainable(model)))
        return Plan((Phase(names, epochs=self.tuning_epochs),), self.tuning_rule, self.batch_size)

    @property
    def tuning_rule(self) -> Rule:
        """Fine-tuning uses momentum with every method."""
        return replace(self.rule, momentum=0.5) if isinstance(self.rule, SGD) else self.rule

    def adaptation(self, model: nn.Module) -> Plan:
        """What a client does to the shared model before the "global" evaluation tests it."""
        return Plan((), self.rule, self.batch_size)

    def average(self, answers: Sequence[Answer]) -> Params:
        """The next shared part."""
        samples = [float(answer.samples) for answer in answers]
        weights = samples if self.weighting == "samples" else [1.0] * len(answers)
        return weighted_mean([answer.shared for answer in answers], weights)


@dataclass(frozen=True, kw_only=True)
class SharesAll(Algorithm):
    """Algorithms that share the whole model; fine-tuning adapts its last linear layer."""

    personalises: ClassVar[bool] = False

    def is_personal(self, model: nn.Module) -> Predicate:
        return nothing

    def adapts(self, model: nn.Module) -> Predicate:
        return predicate(model, last_linear(model))


@dataclass(frozen=True, kw_only=True)
class PersonalHead(Algorithm):
    """Algorithms that share the representation and keep the head."""

    personal: Personal = "head"

    def is_personal(self, model: nn.Module) -> Predicate:
        return predicate(model, self.personal)


def trainable(model: nn.Module) -> frozenset[str]:
    """The names of the parameters that training may change."""
    return frozenset(name for name, value in model.named_parameters() if value.requires_grad)


def weighted_mean(parts: Sequence[Params], weights: Sequence[float]) -> Params:
    """The weighted mean of tensors by name, summed in double precision.

    >>> mean = weighted_mean([{"a": torch.tensor([1.0])}, {"a": torch.tensor([4.0])}], [2, 1])
    >>> float(mean["a"])
    2.0
    """
    total = sum(weights)
    shares = [weight / total for weight in weights]
    mean = {}
    for name, like in parts[0].items():
        average = _weighted_sum([part[name] for part in parts], shares)
        # Shares such as 1/3 are not exact: a count must not be cut to the one below.
        mean[name] = (average if like.is_floating_point() else average.round()).to(like.dtype)
    return mean


def _weighted_sum(values: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    """In double precision: on a GPU in one go, on a CPU one by one, in memory that stays cached."""
    if values[0].is_cuda:
        weights = torch.tensor(shares, dtype=torch.float64, device=values[0].device)
        return (weights @ torch.stack(list(values)).double().flatten(1)).reshape(values[0].shape)
    total = torch.zeros_like(values[0], dtype=torch.float64)
    for value, share in zip(values, shares, strict=True):
        total.add_(value, alpha=share)
    return total

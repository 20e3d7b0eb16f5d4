"""HF-MAML (Fallah et al., 2020): a model from which one gradient step makes a good personal one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from srpfl.algorithms.base import Evaluation, SharesAll
from srpfl.algorithms.fedavg import amount
from srpfl.core.plan import Phase, Plan
from srpfl.core.rules import SGD, HessianFreeMAML, Rule
from srpfl.core.split import trainable
from srpfl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class HFMAML(SharesAll):
    """Hessian-free MAML steps on everything; evaluation takes one α-step per client."""

    epochs: int | None = 1
    steps: int | None = None
    rule: Rule = HessianFreeMAML()

    headline: ClassVar[Evaluation] = "global"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.rule, HessianFreeMAML):
            raise ConfigError("HF-MAML's rule is HessianFreeMAML(alpha=..., beta=..., delta=...)")

    def phases(self, shared: frozenset[str], personal: frozenset[str]) -> tuple[Phase, ...]:
        return (amount(shared, self.epochs, self.steps),)

    @property
    def tuning_rule(self) -> Rule:
        return SGD(momentum=0.5)

    def adaptation(self, model: nn.Module) -> Plan:
        """One step with rate α on the client's whole training data, no weight decay."""
        assert isinstance(self.rule, HessianFreeMAML)
        rule = SGD(lr=self.rule.alpha, weight_decay=0.0)
        return Plan((Phase(trainable(model), steps=1),), rule, batch_size=None)

"""Per-FedAvg (Fallah et al., 2020), first order: HF-MAML's cheaper sister."""

from __future__ import annotations

from dataclasses import dataclass

from srpfl.algorithms.hf_maml import HFMAML
from srpfl.core.rules import Gradient, HessianFreeMAML, Rule, RuleState
from srpfl.core.split import Params


@dataclass(frozen=True, kw_only=True)
class FirstOrderMAML(HessianFreeMAML):
    """w ← w − β∇f(w − α∇f(w)): MAML's step without the Hessian; both gradients on one batch."""

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        here = gradient(params)
        ahead = gradient({name: value - self.alpha * here[name] for name, value in params.items()})
        return {name: value - self.beta * ahead[name] for name, value in params.items()}, state


@dataclass(frozen=True, kw_only=True)
class PerFedAvg(HFMAML):
    """First-order MAML steps on everything; evaluation takes one α-step per client."""

    rule: Rule = FirstOrderMAML()

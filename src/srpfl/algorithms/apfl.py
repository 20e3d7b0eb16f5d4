"""APFL (Deng et al., 2020): a mixture of the shared model and one of the client's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import nn

from srpfl.algorithms.base import Evaluation
from srpfl.algorithms.fedavg import FedAvg
from srpfl.core.plan import Plan
from srpfl.core.rules import SGD, Gradient, Rule, RuleState, among
from srpfl.core.slots import Slots
from srpfl.core.split import Params, Split
from srpfl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class APFL(FedAvg):
    """FedAvg on w. In each step also v ← v − ηα∇f_i(v̄) and, if it is learnt, α ← α − η⟨v − w,
    ∇f_i(v̄)⟩ cut to [0, 1], with v̄ = αv + (1 − α)w. A client is judged by its v̄ ("local")."""

    alpha: float = 0.5  # α, in the beginning
    learn_alpha: bool = True
    rule: SGD = SGD()

    headline: ClassVar[Evaluation] = "local"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.alpha <= 1 or type(self.rule) is not SGD:
            raise ConfigError("APFL needs an alpha from 0 to 1, and SGD")

    def plans(self, model: nn.Module) -> tuple[Plan, ...]:
        rule = Mixing(rule=self.rule, rate=self.rule.lr if self.learn_alpha else 0.0)
        keeps = ("v", "alpha")
        return tuple(replace(plan, rule=rule, keeps=keeps) for plan in super().plans(model))

    def client_state(self, parts: Split) -> Slots:
        return {"v": parts.trained, "alpha": {"alpha": torch.tensor(self.alpha)}}

    def own(self, shared: Params, personal: Params, slots: Mapping[str, Params]) -> Params:
        v, alpha = slots["v"], slots["alpha"]["alpha"]
        return {name: alpha * v[name] + (1 - alpha) * shared[name] for name in v}


@dataclass(frozen=True, kw_only=True)
class Mixing:
    """A step on w, one on v, and one on α, all from the same place."""

    rule: Rule = SGD()
    rate: float  # of α

    def start(self, params: Params, given: Slots) -> RuleState:
        inner = self.rule.start(params, given)
        own = {"v": among(params, given["v"]), "alpha": {"alpha": given["alpha"]["alpha"]}}
        return {**inner, **{f"of v: {name}": value for name, value in inner.items()}, **own}

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        v, alpha = state["v"], state["alpha"]["alpha"]
        of_w = {name: value for name, value in state.items() if f"of v: {name}" in state}
        of_v = {name: state[f"of v: {name}"] for name in of_w}
        moved, of_w = self.rule.step(gradient, params, of_w)
        mixed = gradient({name: alpha * v[name] + (1 - alpha) * params[name] for name in v})
        after, of_v = self.rule.step(
            lambda at: {name: alpha * grad for name, grad in mixed.items()}, v, of_v
        )
        slope = torch.stack([((v[n] - params[n]) * grad).sum() for n, grad in mixed.items()]).sum()
        learnt = (alpha - self.rate * slope).clamp(0, 1)
        inner = {**of_w, **{f"of v: {name}": value for name, value in of_v.items()}}
        return moved, {**inner, "v": after, "alpha": {"alpha": learnt}}

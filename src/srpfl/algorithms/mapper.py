"""MAPPER (Mansour et al., 2020): a local and a shared model, mixed as suits the client best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from srpfl.algorithms.base import Evaluation
from srpfl.algorithms.fedavg import FedAvg
from srpfl.core.plan import Plan
from srpfl.core.rules import SGD, Gradient, RuleState, among, loss_and_gradient
from srpfl.core.slots import Slots
from srpfl.core.split import Params, Split
from srpfl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class MAPPER(FedAvg):
    """A client has a local model v_λ for each λ of a grid. In each step v_λ ← v_λ − ηλ∇f_i(λv_λ +
    (1 − λ)w) for all λ, and w ← w − η(1 − λ)∇f_i of the mixture with the least loss in the round so
    far; the server averages w. A client is judged by its best mixture ("local").

    That is descent on the paper's objective, Σ f_i(λ_i v_i + (1 − λ_i)w) in w, all v_i and all λ_i
    of the grid. The paper's pseudo-code was not at hand. By its text a client first fits its local
    models to the w that it was sent, then chooses λ, then improves w; here it does so batch by
    batch, at half the passes over its data. Weights are mixed, which for linear models mixes
    predictions as the paper does. APFL mixes the same way, but trains w for itself and learns λ."""

    grid: tuple[float, ...] = (0.25, 0.5, 0.75)  # of λ
    rule: SGD = SGD()

    headline: ClassVar[Evaluation] = "local"

    def __post_init__(self) -> None:
        super().__post_init__()
        plain = type(self.rule) is SGD and not self.rule.momentum
        if not plain or not self.grid or not all(0 <= each <= 1 for each in self.grid):
            raise ConfigError("MAPPER needs SGD without momentum, and a grid of numbers up to 1")

    def plans(self, model: nn.Module) -> tuple[Plan, ...]:
        rule, keeps = BestMixture(rule=self.rule, grid=self.grid), ("v", "best")
        return tuple(replace(plan, rule=rule, keeps=keeps) for plan in super().plans(model))

    def client_state(self, parts: Split) -> Slots:
        count = len(self.grid)
        v = {n: value.expand(count, *value.shape).clone() for n, value in parts.trained.items()}
        return {"v": v, "best": {"best": torch.eye(count)[0]}}

    def own(self, shared: Params, personal: Params, slots: Mapping[str, Params]) -> Params:
        best = slots["best"]["best"]
        return mixture(
            share_of(best, self.grid), {n: picked(best, v) for n, v in slots["v"].items()}, shared
        )


def mixture(share: Tensor | float, v: Params, w: Params) -> Params:
    return {name: share * v[name] + (1 - share) * w[name] for name in v}


def share_of(best: Tensor, grid: tuple[float, ...]) -> Tensor:
    """The λ that is the best one's."""
    return torch.stack([share * one for share, one in zip(grid, best.unbind(), strict=True)]).sum()


def picked(best: Tensor, rows: Tensor) -> Tensor:
    """The row that is the best one's."""
    row: Tensor = torch.tensordot(best.to(rows), rows, 1)
    return row


@dataclass(frozen=True, kw_only=True)
class BestMixture:
    """A step of all local models, and one of w through the best mixture."""

    rule: SGD
    grid: tuple[float, ...]

    def start(self, params: Params, given: Slots) -> RuleState:
        count, v = len(self.grid), among(params, given["v"])
        v = {
            n: each.reshape(-1, *params[n].shape).expand(count, *params[n].shape)
            for n, each in v.items()
        }
        best = given["best"]["best"]
        return {"v": v, "best": {"best": best}, "losses": {"sums": torch.zeros_like(best)}}

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        losses, moved, pulls = [], [], []
        for k, share in enumerate(self.grid):
            v = {name: rows[k] for name, rows in state["v"].items()}
            loss, grads = loss_and_gradient(gradient, mixture(share, v, params))
            moved.append(self._moved(v, grads, share))
            losses.append(loss)
            pulls.append(grads)
        before, sums = state["best"]["best"], state["losses"]["sums"]
        sums = sums + torch.stack(losses).to(sums)
        places = torch.arange(len(self.grid), device=before.device)
        best = (places == sums.argmin()).to(before)
        pull = {n: picked(best, torch.stack([grads[n] for grads in pulls])) for n in params}
        w = self._moved(params, pull, 1 - share_of(best, self.grid))
        v = {name: torch.stack([after[name] for after in moved]) for name in state["v"]}
        return w, {"v": v, "best": {"best": best}, "losses": {"sums": sums}}

    def _moved(self, params: Params, grads: Params, share: Tensor | float) -> Params:
        scaled = {name: share * grad for name, grad in grads.items()}
        return self.rule.step(lambda at: scaled, params, {})[0]

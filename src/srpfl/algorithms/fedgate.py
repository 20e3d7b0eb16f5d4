"""FedGATE (Haddadpour et al., 2021): local gradients that follow the global one. FLANP
(Reisizadeh et al., 2022) is FedGATE with the fastest clients first: with doubling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from srpfl.algorithms.base import Answered, stepped
from srpfl.algorithms.fedavg import FedAvg
from srpfl.core.plan import Plan
from srpfl.core.rules import SENT, SGD, Corrected, RuleState, among
from srpfl.core.slots import Given, Reply, Slots, Trained
from srpfl.core.split import Params, Split
from srpfl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class FedGATE(FedAvg):
    """τ local steps y ← y − η(∇f_i(y) − δ_i), Δ_i = x − y; the server takes x ← x − γΔ with Δ the
    mean, and δ_i ← δ_i + (Δ_i − Δ) / (ητ). A client sees Δ in how far x has moved until it is
    asked again; if it was left out in between, in the mean move of those rounds."""

    rule: SGD = SGD()
    server_lr: float = 1.0  # γ

    corrects: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.rule) is not SGD or self.rule.momentum or not self.server_lr > 0:
            raise ConfigError("FedGATE needs SGD without momentum and a positive server_lr")

    def plans(self, model: nn.Module) -> tuple[Plan, ...]:
        rule = Followed(rule=self.rule, server_lr=self.server_lr)
        return tuple(replace(plan, rule=rule) for plan in super().plans(model))

    def server_state(self, parts: Split) -> Slots:
        return {"round": {"now": torch.ones(())}}

    def client_state(self, parts: Split) -> Slots:
        zeros = {name: torch.zeros_like(value) for name, value in parts.trained.items()}
        last = {"round": torch.zeros(()), "length": torch.ones(())}  # round 0: never yet
        return {"delta": zeros, "x": parts.trained, "y": parts.trained, "last": last}

    def sends(self, server: Slots) -> Slots:
        return server

    def finish(self, given: Given, trained: Trained) -> Reply:
        now = given.server["round"]["now"]
        delta = followed(given.shared, now, given.own, self.server_lr)
        length = trained.steps.clamp(min=1) * self.rule.lr
        x, y = among(delta, given.shared), among(delta, trained.shared)
        own = {"delta": delta, "x": x, "y": y, "last": {"round": now, "length": length}}
        return Reply(trained.shared, trained.personal, own)

    def update(
        self, sent: Params, server: Slots, answers: Sequence[Answered], population: int
    ) -> tuple[Params, Slots]:
        moved = stepped(sent, self.mean(sent, answers), self.server_lr)
        return moved, {"round": {"now": server["round"]["now"] + 1}}


def followed(sent: Params, now: Tensor, own: Slots, server_lr: float) -> Params:
    """δ_i, with what has become of x since the client took part."""
    last, x, y = own["last"], own["x"], own["y"]
    took_part = (last["round"] > 0).to(now.dtype)
    rounds = (now - last["round"]).clamp(min=1) * server_lr
    mean = {name: (x[name] - sent[name]) / rounds for name in x}  # Δ
    return {
        name: old + took_part * (x[name] - y[name] - mean[name]) / last["length"]
        for name, old in own["delta"].items()
    }


@dataclass(frozen=True, kw_only=True)
class Followed(Corrected):
    """Steps on the gradient less δ_i."""

    minus: str = "delta"
    server_lr: float = 1.0

    def start(self, params: Params, given: Slots) -> RuleState:
        own = {slot: given[slot] for slot in ("delta", "x", "y", "last")}
        delta = followed(given[SENT], given["round"]["now"], own, self.server_lr)
        return super().start(params, {"delta": delta})

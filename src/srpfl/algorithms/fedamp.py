"""FedAMP (Huang et al., 2021): clients are pulled to the models of those who are like them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from srpfl.algorithms.base import Answered, Evaluation
from srpfl.algorithms.fedavg import FedAvg, amount
from srpfl.core.plan import Plan
from srpfl.core.rules import SGD, Gradient, Proximal, Rule, RuleState, among
from srpfl.core.slots import Given, Reply, Slots, Trained
from srpfl.core.split import Params, Split, trainable
from srpfl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class FedAMP(FedAvg):
    """u_i = w_i + Σ_j ξ_ij (w_j − w_i) with ξ_ij = α/σ·exp(−‖w_i − w_j‖² / σ), then from u_i local
    steps on f_i(w) + λ/2α·‖w − u_i‖². A client is judged by its w_i ("local").

    The server keeps the last models of ``peers`` clients and sends them all; a client mixes them.
    With as many peers as clients this is the paper's."""

    peers: int = 10
    alpha: float = 0.1  # α
    strength: float = 0.1  # λ
    sigma: float = 100.0  # σ

    headline: ClassVar[Evaluation] = "local"
    moves: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.peers >= 1 and self.alpha > 0 and self.sigma > 0 and self.strength >= 0):
            raise ConfigError("FedAMP needs peers, a positive alpha and sigma, and a strength")

    def plans(self, model: nn.Module) -> tuple[Plan, ...]:
        rule = Attentive(rule=self.rule, alpha=self.alpha, sigma=self.sigma, strength=self.strength)
        phase = amount(trainable(model), self.epochs, self.steps)
        return (Plan((phase,), rule, self.batch_size, slot="w"),)

    def server_state(self, parts: Split) -> Slots:
        rows = {n: value.expand(self.peers, *value.shape) for n, value in parts.trained.items()}
        seen = {"client": torch.full((self.peers,), -1.0), "known": torch.zeros(self.peers)}
        return {"peers": {name: value.clone() for name, value in rows.items()}, "seen": seen}

    def client_state(self, parts: Split) -> Slots:
        return {"w": parts.shared}

    def sends(self, server: Slots) -> Slots:
        return {"peers": server["peers"], "seen": {"known": server["seen"]["known"]}}

    def finish(self, given: Given, trained: Trained) -> Reply:
        return Reply(trained.own["w"], trained.personal, trained.own)

    def update(
        self, sent: Params, server: Slots, answers: Sequence[Answered], population: int
    ) -> tuple[Params, Slots]:
        """Answers come before older ones, of which each client has the last only."""
        names, clients = server["peers"], [answer.client for answer in answers]
        rows = [({n: a.shared[n] for n in names}, float(a.client)) for a in answers]
        for row, client in enumerate(server["seen"]["client"].tolist()):
            if client not in clients:
                rows.append(({n: names[n][row] for n in names}, client))
        rows = rows[: self.peers]
        who = torch.tensor([client for _, client in rows])
        peers = {name: torch.stack([model[name] for model, _ in rows]) for name in names}
        seen = {"client": who, "known": (who >= 0).float()}
        return self.mean(sent, answers), {"peers": peers, "seen": seen}

    def own(self, shared: Params, personal: Params, slots: Mapping[str, Params]) -> Params:
        return slots["w"]


@dataclass(frozen=True, kw_only=True)
class Attentive:
    """A rule that begins at u, and is pulled to it."""

    rule: Rule = SGD()
    alpha: float
    sigma: float
    strength: float

    def start(self, params: Params, given: Slots) -> RuleState:
        gaps = {n: peers - params[n] for n, peers in among(params, given["peers"]).items()}
        squares = torch.stack([gap.flatten(1).square().sum(1) for gap in gaps.values()]).sum(0)
        near = torch.exp(-squares / self.sigma) * given["seen"]["known"]  # 0 for rows still empty
        weights = self.alpha / self.sigma * near
        move = {name: torch.tensordot(weights, gap, 1) for name, gap in gaps.items()}
        u = {name: value + move[name] for name, value in params.items()}
        return {**self._pulled.start(params, {"u": u}), "move": move}

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        begun = {name: value + state["move"][name] for name, value in params.items()}
        params, after = self._pulled.step(gradient, begun, state)
        done = {name: torch.zeros_like(value) for name, value in state["move"].items()}
        return params, {**after, "move": done}

    @property
    def _pulled(self) -> Proximal:
        return Proximal(rule=self.rule, strength=self.strength / self.alpha, towards="u")

"""MOCHA's coupling of tasks (Smith et al., 2017), for linear models, in primal steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from srpfl.algorithms.base import Answered, Evaluation
from srpfl.algorithms.fedavg import FedAvg, amount
from srpfl.core.plan import Plan
from srpfl.core.rules import ABOUT, SGD, Gradient, Rule, RuleState, among
from srpfl.core.slots import Given, Reply, Slots, Trained
from srpfl.core.split import Params, Split, trainable
from srpfl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class MOCHA(FedAvg):
    """Descent on Σ f_i(w_i) + λ/2·Σ Ω_ij ⟨w_i, w_j⟩: a client's steps are on its own w_i, with the
    others' as the server sent them. Ω is learnt as the inverse of Σ = √(WWᵀ) / tr √(WWᵀ), of which
    half stays I/m so that steps stay short; or it is I − 11ᵀ/m ("mean"). A client is judged by its
    w_i ("local"). All m models go to everyone: for small, linear ones."""

    tasks: int = 100  # m, at least as many as there are clients
    strength: float = 0.001  # λ
    coupling: Literal["learnt", "mean"] = "learnt"

    headline: ClassVar[Evaluation] = "local"
    moves: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tasks < 1 or not self.strength >= 0 or self.coupling not in ("learnt", "mean"):
            raise ConfigError("MOCHA needs tasks, a strength, and a coupling: learnt or mean")

    def plans(self, model: nn.Module) -> tuple[Plan, ...]:
        phase = amount(trainable(model), self.epochs, self.steps)
        rule = Coupled(rule=self.rule, strength=self.strength)
        return (Plan((phase,), rule, self.batch_size, slot="w"),)

    def server_state(self, parts: Split) -> Slots:
        zeros = {n: v.new_zeros(self.tasks, *v.shape) for n, v in parts.trained.items()}
        eye = torch.eye(self.tasks)
        omega = self.tasks * eye if self.coupling == "learnt" else eye - 1 / self.tasks
        return {"tasks": zeros, "omega": {"omega": omega}}

    def client_state(self, parts: Split) -> Slots:
        return {"w": parts.shared}

    def sends(self, server: Slots) -> Slots:
        return server

    def finish(self, given: Given, trained: Trained) -> Reply:
        return Reply(trained.own["w"], trained.personal, trained.own)

    def update(
        self, sent: Params, server: Slots, answers: Sequence[Answered], population: int
    ) -> tuple[Params, Slots]:
        if population > self.tasks:
            raise ConfigError(f"MOCHA has {self.tasks} tasks for {population} clients: give more")
        tasks = {name: rows.to(sent[name]).clone() for name, rows in server["tasks"].items()}
        for answer in answers:
            for name, rows in tasks.items():
                rows[answer.client] = answer.shared[name]
        omega = server["omega"]["omega"]
        if self.coupling == "learnt":
            omega = learnt(torch.cat([rows.flatten(1).double() for rows in tasks.values()], 1))
        return self.mean(sent, answers), {"tasks": tasks, "omega": {"omega": omega}}

    def own(self, shared: Params, personal: Params, slots: Mapping[str, Params]) -> Params:
        return slots["w"]


def learnt(w: Tensor) -> Tensor:
    """Ω of the tasks' models, a row for each."""
    values, vectors = torch.linalg.eigh(w @ w.T)
    root = values.clamp(min=0).sqrt()
    shares = root / root.sum().clamp(min=1e-12)
    inverse: Tensor = (vectors * (2 / (shares + 1 / len(w)))) @ vectors.T
    return inverse


@dataclass(frozen=True, kw_only=True)
class Coupled:
    """Another rule, with λ·Σ_j Ω_ij w_j added to the gradient, for the client's own i."""

    rule: Rule = SGD()
    strength: float

    def start(self, params: Params, given: Slots) -> RuleState:
        omega = given["omega"]["omega"]
        omega = omega.reshape(-1, omega.shape[-1] if omega.ndim else 1)
        mine = (torch.arange(len(omega), device=omega.device) == given[ABOUT]["client"]).to(omega)
        row = self.strength * (mine @ omega)
        others = row * (1 - mine)
        pull = {
            name: torch.tensordot(others.to(rows), rows.reshape(-1, *params[name].shape), 1)
            for name, rows in among(params, given["tasks"]).items()
        }
        return {**self.rule.start(params, given), "pull": pull, "own": {"own": (row * mine).sum()}}

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        pull, own = state["pull"], state["own"]["own"]

        def coupled(at: Params) -> Params:
            return {n: grad + own * at[n] + pull[n] for n, grad in gradient(at).items()}

        params, after = self.rule.step(coupled, params, state)
        return params, {**after, "pull": pull, "own": state["own"]}

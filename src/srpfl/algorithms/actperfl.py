"""ActPerFL (Chen et al., 2022): how uncertain clients are says how much each keeps to itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from srpfl.algorithms.base import Answered, Evaluation
from srpfl.algorithms.fedavg import FedAvg
from srpfl.core.means import weighted_mean
from srpfl.core.plan import Plan
from srpfl.core.rules import SENT, SGD, Gradient, Rule, RuleState, among
from srpfl.core.slots import Given, Reply, Slots, Trained
from srpfl.core.split import Params, Split


@dataclass(frozen=True, kw_only=True)
class ActPerFL(FedAvg):
    """Clients' models θ_i ~ N(θ, σ²), and what a client finds is off its θ_i by σ_i². It begins at
    θ without its own part in it, init = (θ − ρθ_i) / (1 − ρ), comes to y by local steps, and takes
    θ_i = init + (y − init)·s / (s + σ_i²), the mean of its posterior given y and what the others
    have sent: s = σ² + 1 / Σ_{k≠i} 1 / (σ² + σ_k²) is how far its θ_i is from init. The server's θ
    is the mean of θ_i weighted by 1 / (σ² + σ_i²), of which ρ is its share. σ_i² is the variance of
    its steps' iterates and σ² that of the θ_i, per weight. A client is judged by its θ_i ("local").

    The paper stops after fewer steps where σ_i² is large: on a quadratic whose curvature is the
    same in all directions that is this mixture, and clients here all take their steps. Its
    pseudo-code was not at hand: this is its hierarchical model, solved."""

    headline: ClassVar[Evaluation] = "local"

    def plans(self, model: nn.Module) -> tuple[Plan, ...]:
        rule, keeps = Watched(rule=self.rule), ("noted",)
        return tuple(replace(plan, rule=rule, keeps=keeps) for plan in super().plans(model))

    def server_state(self, parts: Split) -> Slots:
        # Before the first answers σ² is infinite, so it is kept as 1/σ².
        zero = torch.zeros(())
        return {"spread": {"precision": zero, "weights": zero.clone(), "round": torch.ones(())}}

    def client_state(self, parts: Split) -> Slots:
        noted = {"squares": torch.zeros(())}
        last = {"variance": torch.zeros(()), "round": torch.tensor(-1.0)}
        return {"theta": parts.trained, "noted": noted, "last": last}

    def sends(self, server: Slots) -> Slots:
        return server

    def finish(self, given: Given, trained: Trained) -> Reply:
        spread, theta = given.server["spread"], given.own["theta"]
        count = sum(value.numel() for value in theta.values())
        variance = trained.own["noted"]["squares"] / (trained.steps.clamp(min=1) * count)
        init = begun(given.shared, theta, spread, given.own["last"])
        others = spread["weights"] - in_it(spread, given.own["last"])
        share = 1 / (1 + spread["precision"] * variance * others / (1 + others))
        found = {n: at + share * (trained.shared[n] - at) for n, at in init.items()}
        last = {"variance": variance, "round": spread["round"]}
        own = {**trained.own, "theta": found, "last": last}
        sent = {"uncertainty": {"variance": variance}}
        return Reply({**trained.shared, **found}, trained.personal, own, sent)

    def update(
        self, sent: Params, server: Slots, answers: Sequence[Answered], population: int
    ) -> tuple[Params, Slots]:
        spread = server["spread"]
        names = [name for name, value in sent.items() if value.is_floating_point()]
        rows = torch.stack(
            [torch.cat([a.shared[n].double().flatten() for n in names]) for a in answers]
        )
        precision = spread["precision"]
        if len(answers) > 1:
            precision = (1 / rows.var(0).mean().clamp(min=1e-12)).to(sent[names[0]])
        each = [weight(precision, a.sent["uncertainty"]["variance"]) for a in answers]
        mean = weighted_mean([answer.shared for answer in answers], [float(w) for w in each])
        told = {"precision": precision, "weights": torch.stack(each).sum()}
        return mean, {"spread": {**told, "round": spread["round"] + 1}}

    def own(self, shared: Params, personal: Params, slots: Mapping[str, Params]) -> Params:
        return slots["theta"]


def weight(precision: Tensor, variance: Tensor) -> Tensor:
    """1 / (σ² + σ_i²), times σ² so that it is finite where σ² is not."""
    return 1 / (1 + precision * variance.to(precision))


def in_it(spread: Params, last: Params) -> Tensor:
    """The weight of the client's own part in θ: none, unless it took part in the last round."""
    was_there = (last["round"] == spread["round"] - 1).to(spread["precision"])
    return was_there * weight(spread["precision"], last["variance"])


def begun(sent: Params, theta: Params, spread: Params, last: Params) -> Params:
    """Where local steps begin: at θ, without the client's own part if that is in it."""
    rho = in_it(spread, last) / spread["weights"].clamp(min=1e-12)
    rho = torch.where(rho < 0.999, rho, 0.0)  # it was alone: there is nothing else
    return {name: (sent[name] - rho * value) / (1 - rho) for name, value in theta.items()}


@dataclass(frozen=True, kw_only=True)
class Watched:
    """Another rule, from the client's own beginning; how far its iterates are from their mean, in
    squares, is noted as they come (Welford)."""

    rule: Rule = SGD()

    def start(self, params: Params, given: Slots) -> RuleState:
        sent = among(params, given[SENT])
        init = begun(sent, among(params, given["theta"]), given["spread"], given["last"])
        move = {name: init[name] - value for name, value in sent.items()}
        count = torch.zeros_like(given["spread"]["round"])
        noted = {"squares": torch.zeros_like(count)}
        mean = {name: torch.zeros_like(value) for name, value in init.items()}
        kept = {"move": move, "count": {"count": count}, "mean": mean, "noted": noted}
        return {**self.rule.start(params, given), **kept}

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        begun = {name: value + state["move"][name] for name, value in params.items()}
        moved, after = self.rule.step(gradient, begun, state)
        count, old = state["count"]["count"] + 1, state["mean"]
        mean = {name: old[name] + (value - old[name]) / count for name, value in moved.items()}
        squares = [((v - old[n]) * (v - mean[n])).sum() for n, v in moved.items()]
        noted = {"squares": state["noted"]["squares"] + torch.stack(squares).sum()}
        done = {name: torch.zeros_like(value) for name, value in state["move"].items()}
        kept = {"move": done, "count": {"count": count}, "mean": mean, "noted": noted}
        return moved, {**after, **kept}

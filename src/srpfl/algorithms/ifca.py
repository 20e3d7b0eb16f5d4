"""IFCA (Ghosh et al., 2020) and HypCluster (Mansour et al., 2020): clients choose a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from srpfl.algorithms.base import Answered, Evaluation
from srpfl.algorithms.fedavg import FedAvg
from srpfl.core.plan import Phase, Plan
from srpfl.core.rules import Gradient, RuleState, among, loss_at
from srpfl.core.slots import Given, Reply, Slots, Trained
from srpfl.core.split import Params, Split, trainable
from srpfl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class IFCA(FedAvg):
    """Clients get all models x_1 … x_k, train the one with the least loss on their data, and say
    which; the server averages by cluster. The shared model is x_1; a client is judged by the one
    that it chose last ("local"). The others begin with the same weights in another order."""

    clusters: int = 2  # k

    headline: ClassVar[Evaluation] = "local"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clusters < 1:
            raise ConfigError(f"IFCA needs at least one cluster, not {self.clusters}")

    def plans(self, model: nn.Module) -> tuple[Plan, ...]:
        choose = Phase(trainable(model), steps=1)
        return Plan((choose,), Chosen(), None, keeps=("choice",)), *super().plans(model)

    def server_state(self, parts: Split) -> Slots:
        draws = torch.Generator().manual_seed(1)
        others = {
            name: [_shuffled(value, draws) for _ in range(self.clusters - 1)]
            for name, value in parts.trained.items()
        }
        none = {name: value.new_zeros(0, *value.shape) for name, value in parts.trained.items()}
        stacked = {name: torch.stack(rows) for name, rows in others.items() if rows}
        return {"others": {**none, **stacked}}

    def client_state(self, parts: Split) -> Slots:
        return {"choice": {"cluster": torch.eye(self.clusters)[0]}}

    def sends(self, server: Slots) -> Slots:
        return server

    def finish(self, given: Given, trained: Trained) -> Reply:
        """How far the chosen model has moved, as if x_1 had: as any answer, it counts and travels
        by what has changed."""
        choice = {"choice": trained.own["choice"]}
        picked, x, y = choice["choice"]["cluster"], given.shared, trained.shared
        begun = _picked(picked, x, given.server["others"])
        moved = {n: x[n] + (y[n] - value) for n, value in begun.items()}
        exact = {n: torch.where(picked[0] > 0, y[n], value) for n, value in moved.items()}
        return Reply({**y, **exact}, trained.personal, choice, choice)

    def update(
        self, sent: Params, server: Slots, answers: Sequence[Answered], population: int
    ) -> tuple[Params, Slots]:
        chosen = [int(answer.sent["choice"]["cluster"].argmax()) for answer in answers]
        models: list[Params] = []
        for cluster in range(self.clusters):
            before = _model(sent, server["others"], cluster)
            mine = [a for a, its in zip(answers, chosen, strict=True) if its == cluster]
            mean = self.mean(sent, mine) if mine else {}
            moved = {n: mean[n] + (x - sent[n]) for n, x in before.items() if mine}
            models.append({**sent, **before, **mean, **moved})
        names = server["others"]
        others = {n: torch.stack([model[n] for model in models])[1:] for n in names}
        return models[0], {"others": others}

    def own(self, shared: Params, personal: Params, slots: Mapping[str, Params]) -> Params:
        return _picked(slots["choice"]["cluster"], shared, slots["others"])


@dataclass(frozen=True)
class Chosen:
    """One step from wherever to the cluster with the least loss."""

    def start(self, params: Params, given: Slots) -> RuleState:
        choice = {"cluster": given["choice"]["cluster"].reshape(-1)}
        return {"choice": choice, "others": among(params, given["others"])}

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        others, before = state["others"], state["choice"]["cluster"]
        loss_at(gradient, _picked(before, params, others))  # the first is the one that is noted
        count = len(before)
        losses = [loss_at(gradient, _model(params, others, k)) for k in range(count)]
        best = torch.stack(losses).argmin()
        choice = (torch.arange(count, device=before.device) == best).to(before.dtype)
        return _picked(choice, params, others), {**state, "choice": {"cluster": choice}}


def _model(first: Params, others: Params, cluster: int) -> Params:
    return {n: first[n] if cluster == 0 else rest[cluster - 1] for n, rest in others.items()}


def _picked(choice: Tensor, first: Params, others: Params) -> Params:
    """The chosen cluster's model."""
    models = {
        name: torch.cat([first[name][None], rest.reshape(-1, *first[name].shape)])
        for name, rest in others.items()
    }
    return {name: torch.tensordot(choice.to(every), every, 1) for name, every in models.items()}


def _shuffled(value: Tensor, draws: torch.Generator) -> Tensor:
    order = torch.randperm(value.numel(), generator=draws)
    return value.flatten()[order].reshape(value.shape)

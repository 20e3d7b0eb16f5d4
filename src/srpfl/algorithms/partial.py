"""Partial variable training (Yang et al., 2022; Lee et al., 2023): a few layers at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from srpfl.algorithms.base import Answered, Portion
from srpfl.algorithms.fedavg import FedAvg
from srpfl.core.pieces import Travels
from srpfl.core.plan import Plan
from srpfl.core.rules import ABOUT, SGD, Gradient, Rule, RuleState
from srpfl.core.slots import Slots
from srpfl.core.split import Params, Split
from srpfl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class PartialTraining(FedAvg):
    """In round r client i trains the layers i + r, i + r + 1, … (as many as asked for, and the
    first comes after the last), and leaves the others as they were sent; the server averages each
    layer over those who trained it, and keeps what nobody trained. Only the layers that were
    trained are sent back."""

    layers: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers < 1:
            raise ConfigError(f"a client trains at least one layer, not {self.layers}")

    def plans(self, model: nn.Module) -> tuple[Plan, ...]:
        rule = SomeLayers(rule=self.rule, layers=self.layers)
        return tuple(replace(plan, rule=rule) for plan in super().plans(model))

    def server_state(self, parts: Split) -> Slots:
        layers = list(dict.fromkeys(name.rpartition(".")[0] for name in parts.trained))
        places = {n: torch.tensor(float(layers.index(n.rpartition(".")[0]))) for n in parts.trained}
        now = {"now": torch.zeros(()), "layers": torch.tensor(float(len(layers)))}
        return {"layer": places, "round": now}

    def sends(self, server: Slots) -> Slots:
        return server

    def update(
        self, sent: Params, server: Slots, answers: Sequence[Answered], population: int
    ) -> tuple[Params, Slots]:
        after, now = self.mean(sent, answers), server["round"]
        for name in server["layer"]:
            mine = [a for a in answers if self.on(name, server, a.client, a.age)]
            after |= self.mean(sent, mine, [name]) if mine else {name: sent[name]}
        return after, {**server, "round": {**now, "now": now["now"] + 1}}

    def portion(self, shared: Params, server: Slots, client: int) -> Portion:
        """All is needed for the forward pass, so all is sent; what was trained comes back."""
        frozen = [name for name in server["layer"] if not self.on(name, server, client)]
        whole = sum(value.nbytes for value in shared.values())
        return Portion(up=1 - sum(shared[name].nbytes for name in frozen) / whole)

    def travels(self, shared: Params, server: Slots, client: int) -> Travels:
        frozen = [name for name in server["layer"] if not self.on(name, server, client)]
        return Travels(up={n: torch.zeros_like(shared[n], dtype=torch.bool) for n in frozen})

    def on(self, name: str, server: Slots, client: int, age: int = 0) -> bool:
        """Whether the client trains that parameter in this round, or did so many rounds ago."""
        layer, now = server["layer"][name], server["round"]
        began = {**now, "now": now["now"] - age}
        return bool(trains(torch.tensor(client), layer, began, self.layers))


def trains(client: Tensor, layer: Tensor, now: Params, layers: int) -> Tensor:
    """Whether the client trains that layer in this round."""
    return (layer - client.to(layer) - now["now"]) % now["layers"] < layers


@dataclass(frozen=True, kw_only=True)
class SomeLayers:
    """Another rule, of which only what it does to some layers counts."""

    rule: Rule = SGD()
    layers: int

    def start(self, params: Params, given: Slots) -> RuleState:
        client, now = given[ABOUT]["client"], given["round"]
        on = {name: trains(client, given["layer"][name], now, self.layers) for name in params}
        return {**self.rule.start(params, given), "on": on}

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        on = state["on"]
        moved, after = self.rule.step(gradient, params, state)
        kept = {name: torch.where(on[name], moved[name], old) for name, old in params.items()}
        return kept, {**after, "on": on}

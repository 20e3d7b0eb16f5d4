"""SCAFFOLD (Karimireddy et al., 2020): control variates against the drift of clients, option II."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import nn, zeros_like

from srpfl.algorithms.base import Answered
from srpfl.algorithms.fedavg import FedAvg
from srpfl.core.plan import Plan
from srpfl.core.rules import SGD, Corrected, Gradient, RuleState
from srpfl.core.slots import Given, Reply, Slots, Trained
from srpfl.core.split import Params, Split
from srpfl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class SCAFFOLD(FedAvg):
    """K local steps y ← y − η(∇f_i(y) − c_i + c), then c_i⁺ = c_i − c + (x − y) / (Kη); the server
    moves x by η_g times the mean of y − x, and c by n/N times the mean of c_i⁺ − c_i. Where clients
    count by their samples, c is the mean of the c_i by samples.

    With momentum y ← y − ηm − η(c − c_i), m gathering gradients alone, as in the code of Li et al.
    (2022): c_i is of the length of whole steps, so it must not gather a second time."""

    rule: SGD = SGD()
    server_lr: float = 1.0  # η_g

    corrects: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.rule) is not SGD:
            raise ConfigError("SCAFFOLD's steps are those of SGD")

    def plans(self, model: nn.Module) -> tuple[Plan, ...]:
        kind = Beside if self.rule.momentum else Corrected
        rule = kind(rule=self.rule, plus="c", minus="c_i")
        return tuple(replace(plan, rule=rule) for plan in super().plans(model))

    def server_state(self, parts: Split) -> Slots:
        zeros = {name: zeros_like(value) for name, value in parts.trained.items()}
        return {"c": zeros, **self.hears()}

    def client_state(self, parts: Split) -> Slots:
        return {"c_i": self.server_state(parts)["c"]}

    def sends(self, server: Slots) -> Slots:
        each = self.weighed(server)  # the server's sum counts clients by their weights
        return {"c": {name: value / each for name, value in server["c"].items()}}

    def finish(self, given: Given, trained: Trained) -> Reply:
        c, c_i = given.server["c"], given.own["c_i"]
        length = trained.steps.clamp(min=1) * self.rule.lr  # Kη
        after = {n: c_i[n] - c[n] + (given.shared[n] - trained.shared[n]) / length for n in c_i}
        change = {name: after[name] - c_i[name] for name in c_i}
        return Reply(trained.shared, trained.personal, {"c_i": after}, {"change": change})

    def update(
        self, sent: Params, server: Slots, answers: Sequence[Answered], population: int
    ) -> tuple[Params, Slots]:
        mean, c = self.mean(sent, answers), server["c"]
        weight, _, heard = self.heard(server, answers)
        moved = {name: sent[name] + self.server_lr * (mean[name] - sent[name]) for name in c}
        changes, share = [answer.sent["change"] for answer in answers], weight / population
        change = self.mean_beside(changes, self.weights(answers))
        return {**mean, **moved}, {"c": {n: c[n] + share * change[n] for n in c}, **heard}


@dataclass(frozen=True, kw_only=True)
class Beside(Corrected):
    """A step of SGD, and beside it −η(c − c_i), which its momentum does not see."""

    rule: SGD = SGD()

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        shift = state[self._key]
        moved, after = self.rule.step(gradient, params, state)
        moved |= {name: moved[name] - self.rule.lr * shift[name] for name in shift}
        return moved, {**after, self._key: shift}

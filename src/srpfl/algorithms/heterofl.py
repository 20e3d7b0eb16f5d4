"""HeteroFL (Diao et al., 2021; Cho et al., 2021): weaker devices train narrower networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from srpfl.algorithms.base import Answered, Portion
from srpfl.algorithms.fedavg import FedAvg
from srpfl.core.pieces import Travels
from srpfl.core.plan import Plan
from srpfl.core.rules import ABOUT, SGD, Gradient, Rule, RuleState
from srpfl.core.slots import Given, Reply, Slots, Trained
from srpfl.core.split import Params, Split
from srpfl.errors import ConfigError

LAYERS = (nn.Linear, _ConvNd, _NormBase, nn.GroupNorm, nn.LayerNorm)


@dataclass(frozen=True, kw_only=True)
class HeteroFL(FedAvg):
    """A client of width p has the first p of the units of each hidden layer, and trains them as a
    network of its own; the server averages each number over those who have it, and keeps what
    nobody has. On the clock a client's work and messages are as large as its share of the weights.
    """

    widths: tuple[float, ...] = (1.0, 0.5, 0.25)  # p
    sizes: tuple[int, ...] | None = None  # the place of each client's width; None: one by one

    def __post_init__(self) -> None:
        super().__post_init__()
        places, count = self.sizes or (0,), len(self.widths)
        if not count or not all(0 < p <= 1 for p in self.widths) or not max(places) < count:
            raise ConfigError("HeteroFL needs widths up to 1, and sizes that are places of them")

    @property
    def each(self) -> tuple[float, ...]:
        """The widths of the clients; after the last, from the first again."""
        return self.widths if self.sizes is None else tuple(self.widths[k] for k in self.sizes)

    def plans(self, model: nn.Module) -> tuple[Plan, ...]:
        for name, module in model.named_modules():
            if list(module.parameters(recurse=False)) and not isinstance(module, LAYERS):
                raise ConfigError(
                    f"HeteroFL cannot make '{name}' ({type(module).__name__}) narrower: it needs a "
                    "model of linear, convolutional and normalisation layers"
                )
        rule = Narrow(rule=self.rule, each=self.each)
        return tuple(replace(plan, rule=rule) for plan in super().plans(model))

    def server_state(self, parts: Split) -> Slots:
        """Which parameters lose rows and columns: not the inputs, and not the outputs."""
        of = {name: name.rpartition(".")[0] for name in parts.trained}
        wide = [of[name] for name, value in parts.trained.items() if value.ndim > 1]
        rows = {name: torch.tensor(float(of[name] != wide[-1])) for name in of}
        return {"rows": rows, "columns": {n: torch.tensor(float(of[n] != wide[0])) for n in of}}

    def sends(self, server: Slots) -> Slots:
        return server

    def finish(self, given: Given, trained: Trained) -> Reply:
        """What the client does not have is as it was sent: nothing changed there."""
        width, y = width_of(given.about["client"], self.each), dict(trained.shared)
        for name in given.server["rows"]:
            inside = kept(y[name], width, name, given.server) > 0
            y[name] = torch.where(inside, y[name], given.shared[name])
        return Reply(y, trained.personal, trained.own)

    def update(
        self, sent: Params, server: Slots, answers: Sequence[Answered], population: int
    ) -> tuple[Params, Slots]:
        after = self.mean(sent, answers)
        for name in server["rows"]:
            total, count = (torch.zeros_like(sent[name], dtype=torch.float64) for _ in range(2))
            for answer, weight in zip(answers, self.weights(answers), strict=True):
                width = torch.tensor(self.each[answer.client % len(self.each)])
                inside = weight * kept(sent[name], width, name, server).double()
                total, count = total + inside * answer.shared[name], count + inside
            after[name] = torch.where(count > 0, total / count, sent[name]).to(sent[name])
        return after, server

    def portion(self, shared: Params, server: Slots, client: int) -> Portion:
        width, own = self.each[client % len(self.each)], 0
        for name, rows in server["rows"].items():
            cuts = (rows, server["columns"][name])
            sizes = zip(shared[name].shape, (*cuts, *[0] * shared[name].ndim), strict=False)
            own += math.prod(math.ceil(width * n) if cut else n for n, cut in sizes)
        share = own / sum(shared[name].numel() for name in server["rows"])
        return Portion(share, share, share)

    def travels(self, shared: Params, server: Slots, client: int) -> Travels:
        width = torch.tensor(self.each[client % len(self.each)])
        inside = {n: kept(shared[n], width, n, server).bool() for n in server["rows"]}
        return Travels(inside, inside)


def width_of(client: Tensor, each: tuple[float, ...]) -> Tensor:
    """The client's width; its number is a tensor, of one client or mapped over many."""
    place = torch.arange(len(each), device=client.device) == client % len(each)
    return (torch.tensor(each, device=client.device) * place).sum()


def kept(like: Tensor, width: Tensor, name: str, given: Slots) -> Tensor:
    """One for what a client of that width has of a parameter, and zero for the rest."""
    inside = torch.ones_like(like)
    for axis, cuts in enumerate(("rows", "columns")[: like.ndim]):
        size = like.shape[axis]
        places = torch.arange(size, device=like.device) / size
        mine = (places < torch.where(given[cuts][name] > 0, width, 1.0)).to(like)
        inside = inside * mine.reshape([size if k == axis else 1 for k in range(like.ndim)])
    return inside


@dataclass(frozen=True, kw_only=True)
class Narrow:
    """Another rule, on what the client has; the rest is zero."""

    rule: Rule = SGD()
    each: tuple[float, ...]

    def start(self, params: Params, given: Slots) -> RuleState:
        width = width_of(given[ABOUT]["client"], self.each)
        mine = {name: kept(value, width, name, given) for name, value in params.items()}
        return {**self.rule.start(params, given), "mine": mine}

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        mine = state["mine"]

        def narrow(at: Params) -> Params:
            return {name: value * mine[name] for name, value in at.items()}

        moved, after = self.rule.step(lambda at: narrow(gradient(at)), narrow(params), state)
        return moved, {**after, "mine": mine}

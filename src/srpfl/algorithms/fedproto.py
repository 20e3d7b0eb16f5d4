"""FedProto (Tan et al., 2022): clients exchange what their classes look like, and no weights."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from srpfl.algorithms.base import Algorithm, Answered, Evaluation, stepped
from srpfl.algorithms.fedavg import amount
from srpfl.core.plan import Phase, Plan
from srpfl.core.rules import SGD
from srpfl.core.slots import Given, Reply, Slots, Trained
from srpfl.core.split import Params, Predicate, Split, last_linear, split, trainable

MARGIN = 0.01  # added to every loss: see `Prototyped`


@dataclass(frozen=True, kw_only=True)
class FedProto(Algorithm):
    """Each client trains a model of its own on CE + λ·‖h(x) − C_y‖² / d, where h is what the last
    linear layer sees, in d numbers, and C_y the prototype of the sample's class; then it sends the
    mean of h over its samples of each class, and how many those are. The server averages them by
    class. A client is judged by its own model ("local")."""

    strength: float = 1.0  # λ
    epochs: int | None = 1
    steps: int | None = None

    headline: ClassVar[Evaluation] = "local"
    moves: ClassVar[bool] = False
    needs_classes: ClassVar[bool] = True

    def prepared(self, model: nn.Module) -> nn.Module:
        return Prototyped(model, self.strength)

    def is_personal(self, model: nn.Module) -> Predicate:
        return lambda name: name not in ("prototypes", "count")

    def adapts(self, model: nn.Module) -> Predicate:
        return lambda name: name not in ("prototypes", "count", "probe")

    def split(self, model: nn.Module) -> Split:
        return split(model, self.is_personal(model))

    def plans(self, model: nn.Module) -> tuple[Plan, ...]:
        train = amount(trainable(model) - {"probe"}, self.epochs, self.steps)
        # From zero, one whole step of the probe is the sum that is looked for.
        look, once = SGD(lr=1.0, weight_decay=0.0), Phase(frozenset({"probe"}), steps=1)
        return Plan((train,), self.rule, self.batch_size), Plan((once,), look, None)

    def finish(self, given: Given, trained: Trained) -> Reply:
        found = trained.personal["probe"]  # of each class: its share times the mean of (h, 1)
        share = found[:, -1:]
        prototypes = found[:, :-1] / share.clamp(min=1e-6) * (share > 1e-6)
        count = (share[:, 0] * given.about["samples"]).round()
        kept = {**trained.personal, "probe": torch.zeros_like(found)}
        return Reply({"prototypes": prototypes, "count": count}, kept, trained.own)

    def update(
        self, sent: Params, server: Slots, answers: Sequence[Answered], population: int
    ) -> tuple[Params, Slots]:
        counts = torch.stack([answer.shared["count"] for answer in answers])
        weights = counts if self.weighting == "samples" else (counts > 0).to(counts)
        known, old = sent["count"][:, None] > 0, {"prototypes": sent["prototypes"]}
        late = [stepped(old, a.shared, a.credit)["prototypes"] for a in answers]
        new = [answer.shared["prototypes"] for answer in answers]
        means = torch.where(known, torch.stack(late), torch.stack(new))
        total = weights.sum(0)
        mean = (weights[:, :, None] * means).sum(0) / total.clamp(min=1)[:, None]
        prototypes = torch.where(total[:, None] > 0, mean, sent["prototypes"])
        count = torch.where(total > 0, counts.sum(0), sent["count"])
        return {"prototypes": prototypes, "count": count}, server


class Prototyped(nn.Module):
    """A classifier with prototypes. In training it returns log-probabilities such that the cross
    entropy is FedProto's loss: each has its penalty taken off, and what is then missing to one goes
    to a class that no sample is of. The margin keeps that class likely enough to compute with. The
    probe is always zero; the loss's gradient in it is the sum of (h, 1) by class."""

    def __init__(self, model: nn.Module, strength: float) -> None:
        super().__init__()
        body, [name] = copy.deepcopy(model), last_linear(model)
        head = body.get_submodule(name)
        assert isinstance(head, nn.Linear)
        inside, _, last = name.rpartition(".")
        setattr(body.get_submodule(inside), last, nn.Identity())
        self.body, self.head, self.strength = body, head, strength
        classes, size, like = head.out_features, head.in_features, head.weight.detach()
        self.probe = nn.Parameter(like.new_zeros(classes, size + 1))
        self.register_buffer("prototypes", like.new_zeros(classes, size))
        self.register_buffer("count", like.new_zeros(classes))  # samples behind each

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)
        scores: Tensor = self.head(h)
        if not self.training:
            return scores
        prototypes, count = self.get_buffer("prototypes"), self.get_buffer("count")
        apart = (h[:, None] - prototypes).square().mean(2) * (count > 0)
        looked = h @ self.probe[:, :-1].T + self.probe[:, -1]
        left = scores.log_softmax(1) - self.strength * apart + looked - MARGIN
        none = torch.log1p(-left.exp().sum(1, keepdim=True))
        return torch.cat([left, none], 1)

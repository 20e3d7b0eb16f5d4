"""Small jobs of every shape that engines must agree on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import GRU, LSTM, BatchNorm2d, GroupNorm

from srpfl.algorithms import (
    HFMAML,
    SCAFFOLD,
    Algorithm,
    Ditto,
    FedAdam,
    FedAvg,
    FedBABU,
    FedDyn,
    FedPer,
    FedRep,
    LGFedAvg,
)
from srpfl.core.plan import Phase
from srpfl.core.rules import SGD, Adam, Clipped, Proximal, Scheduled
from srpfl.core.slots import Reply, Slots, packed, unpacked
from srpfl.core.split import Params, combine, partition
from srpfl.data.base import Pooled, Samples, Transform
from srpfl.engine.base import GRADIENT, Engine, Job
from srpfl.engine.steps import filled, flat
from srpfl.loop.simulation import finisher_of
from srpfl.models import MLP, LeNet5, recomputed
from srpfl.participation import Answer
from srpfl.task import Classification, MultiLabel, NextToken, Regression, Task

from . import zoo

CLASSES = 4
EQUAL = (12, 12, 12, 12)
UNEQUAL = (3, 16, 12, 7, 9, 16)


def images(sizes: Sequence[int], transform: Transform = Transform(), *, seed: int = 0) -> Pooled:
    rng, side = np.random.default_rng(seed), 16

    def pool(counts: Sequence[int]) -> tuple[Samples, list[np.ndarray]]:
        total = sum(counts)
        x = rng.integers(0, 256, size=(total, 3, side, side), dtype=np.uint8)
        parts = np.split(rng.permutation(total), np.cumsum(counts)[:-1])
        return Samples(x, rng.integers(0, CLASSES, size=total)), parts

    train, train_parts = pool(sizes)
    test, test_parts = pool([size // 2 + 1 for size in sizes])
    return Pooled("images", train, test, train_parts, test_parts, CLASSES, transform)


def mlp() -> nn.Module:
    torch.manual_seed(1)
    return MLP(3 * 16 * 16, (16, 6), classes=CLASSES)


def lenet(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(1)
    return LeNet5(classes=CLASSES, size=16, conv=(4, 6), linear=(12, 8), dropout=dropout)


class Twice(nn.Linear):
    """A layer of the user's own, which is linear by name only."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(2 * input.tanh())


class Views(nn.Module):
    """As in many tutorials: views of activations, and activations in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 5), nn.Linear(4 * 6 * 6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(nn.functional.relu(self.conv(x), inplace=True), 2)
        logits: torch.Tensor = self.fc(x.view(x.size(0), -1))
        return logits


def views() -> nn.Module:
    torch.manual_seed(1)
    return Views()


def mlp_with_own_layers() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), Twice(3 * 16 * 16, 16), nn.ReLU(), Twice(16, CLASSES))


def mlp_with_dropout() -> nn.Module:
    torch.manual_seed(1)
    first = nn.Linear(3 * 16 * 16, 16, bias=False)
    rest = (nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(16, CLASSES))
    return nn.Sequential(nn.Flatten(), first, *rest)


AUGMENT = Transform(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.2), crop=2, flip=True)


@dataclass(frozen=True)
class Case:
    model: Callable[[], nn.Module]
    algorithm: Algorithm
    sizes: Sequence[int] = UNEQUAL
    transform: Transform = Transform(mean=(0.5,), std=(0.25,))
    make: Callable[[Sequence[int]], Pooled] | None = None  # the data, if they are no images
    task: Task = Classification()

    def data(self) -> Pooled:
        return images(self.sizes, self.transform) if self.make is None else self.make(self.sizes)


@dataclass(frozen=True, kw_only=True)
class TwoPhases(FedPer):
    """Everything twice, so that the optimiser's state is carried from phase to phase."""

    def phases(self, shared: frozenset[str], personal: frozenset[str]) -> tuple[Phase, ...]:
        return (Phase(shared | personal, epochs=1), Phase(shared | personal, steps=2))


def is_norm_or_head(name: str) -> bool:
    """What FedBN keeps: the layers of normalisation, with their statistics, and here the head."""
    return name.startswith(("features.1", "features.4", "features.7", "head"))


gru = zoo.seeded(lambda: zoo.Recurrent(GRU))
lstm = zoo.seeded(lambda: zoo.Recurrent(LSTM))
line = zoo.seeded(lambda: MLP(5, (6,), classes=1))
many = zoo.seeded(lambda: MLP(5, (6,), classes=3))
fedrep = FedRep(head_epochs=2, body_epochs=1, batch_size=5)
CASES = {
    "fedavg": Case(mlp, FedAvg(epochs=2, batch_size=5)),
    "fedavg-equal": Case(mlp, FedAvg(epochs=2, batch_size=5), EQUAL),
    # Clients with few samples train the first layer in their span, others do not.
    "fedavg-few-and-many": Case(mlp, FedAvg(epochs=3, batch_size=10), (420, 12, 31, 600)),
    "fedavg-dropout": Case(mlp_with_dropout, FedAvg(epochs=2, batch_size=5)),
    "fedavg-lenet": Case(lenet, FedAvg(batch_size=5)),
    "fedavg-steps": Case(mlp, FedAvg(epochs=None, steps=7, batch_size=5)),
    "fedavg-adam": Case(mlp, FedAvg(epochs=2, batch_size=5, rule=Adam(lr=0.01))),
    "fedrep": Case(mlp, fedrep),
    "fedrep-own-layers": Case(mlp_with_own_layers, fedrep),
    "fedrep-views": Case(views, fedrep),
    "fedrep-lenet": Case(lenet, fedrep, EQUAL),
    "fedrep-adam": Case(mlp, FedRep(head_epochs=2, body_epochs=1, batch_size=5, rule=Adam())),
    "fedrep-augment": Case(lenet, fedrep, transform=AUGMENT),
    "fedrep-dropout": Case(lambda: lenet(0.5), fedrep),
    "fedrep-dropout-augment": Case(lambda: lenet(0.5), fedrep, transform=AUGMENT),
    "fedrep-steps": Case(mlp, FedRep(head_steps=9, body_steps=4, batch_size=5)),
    "fedrep-two-layers": Case(mlp, FedRep(head_epochs=2, batch_size=5, personal=["fc2", "fc3"])),
    "fedrep-weight-only": Case(mlp, FedRep(head_epochs=2, batch_size=5, personal=["fc3.weight"])),
    "fedper-momentum": Case(mlp, FedPer(batch_size=5, rule=SGD(momentum=0.9, weight_decay=0.01))),
    "fedper-two-phases": Case(mlp, TwoPhases(batch_size=5, rule=SGD(momentum=0.9))),
    "fedbabu": Case(mlp, FedBABU(batch_size=5)),
    "lg-fedavg": Case(mlp, LGFedAvg(epochs=2, batch_size=5)),
    "lg-fedavg-lenet": Case(lenet, LGFedAvg(batch_size=5), transform=AUGMENT),
    "hf-maml": Case(mlp, HFMAML(epochs=2, batch_size=5)),
    "hf-maml-dropout": Case(lambda: lenet(0.3), HFMAML(batch_size=5), EQUAL),
    "scaffold": Case(mlp, SCAFFOLD(epochs=2, batch_size=5)),
    "scaffold-lenet": Case(lenet, SCAFFOLD(batch_size=5), transform=AUGMENT),
    "fedadam": Case(mlp, FedAdam(epochs=2, batch_size=5)),
    "ditto": Case(mlp, Ditto(batch_size=5, rule=SGD(momentum=0.5))),
    "ditto-dropout": Case(mlp_with_dropout, Ditto(batch_size=5, own_epochs=2)),
    "fedrep-clipped": Case(
        mlp, FedRep(head_epochs=2, batch_size=5, rule=Clipped(rule=SGD(momentum=0.5), norm=0.5))
    ),
    "fedrep-scheduled": Case(
        mlp,
        FedRep(
            head_epochs=2,
            batch_size=5,
            rule=Scheduled(rule=SGD(momentum=0.5), decay=0.5, cosine=9, warmup=2),
        ),
    ),
    "fedprox": Case(lenet, FedAvg(batch_size=5, rule=Proximal(strength=0.5))),
    "feddyn": Case(mlp, FedDyn(epochs=2, batch_size=5)),
    # Models and data that no engine was made for.
    "fedrep-tutorial": Case(zoo.seeded(zoo.Tutorial), fedrep),
    "fedrep-groupnorm": Case(norm := zoo.seeded(lambda: zoo.Normed(partial(GroupNorm, 2))), fedrep),
    "fedrep-batchnorm": Case(batch := zoo.seeded(lambda: zoo.Normed(BatchNorm2d)), fedrep),
    "fedrep-batchnorm-equal": Case(batch, fedrep, EQUAL),
    "fedbn": Case(batch, FedPer(batch_size=5, personal=is_norm_or_head)),
    # BatchNorm takes away the bias before it, whose gradient is rounding alone: Adam would divide
    # it by itself, and two loops in single and double precision differ by 0.008 without this eps.
    "fedavg-batchnorm-adam": Case(batch, FedAvg(batch_size=5, rule=Adam(eps=1e-3))),
    "hf-maml-batchnorm": Case(batch, HFMAML(batch_size=5), EQUAL),
    "fedavg-groupnorm": Case(norm, FedAvg(batch_size=5)),
    "ditto-batchnorm": Case(batch, Ditto(batch_size=5)),
    "fedrep-gru": Case(gru, fedrep, make=zoo.text, task=NextToken()),
    "fedavg-lstm": Case(
        lstm, FedAvg(batch_size=5), make=zoo.text, task=NextToken(metric="perplexity")
    ),
    "fedrep-attention": Case(zoo.seeded(zoo.Attending), fedrep, make=zoo.text, task=NextToken()),
    "fedrep-recomputed": Case(
        zoo.seeded(lambda: recomputed(zoo.Attending())), fedrep, make=zoo.text, task=NextToken()
    ),
    "fedper-tied-bytes": Case(
        zoo.seeded(zoo.Tied),
        FedPer(batch_size=5, personal=["mix"]),
        make=zoo.byte_text,
        task=NextToken(),
    ),
    "fedrep-masked-fixed": Case(zoo.seeded(zoo.Masked), fedrep, make=zoo.masked_text),
    "fedrep-two-inputs": Case(zoo.seeded(zoo.Both), fedrep, make=zoo.pairs),
    "fedrep-regression": Case(line, fedrep, make=zoo.numbers, task=Regression()),
    "fedavg-r2": Case(line, FedAvg(batch_size=5), make=zoo.numbers, task=Regression(metric="r2")),
    "fedrep-twice": Case(zoo.seeded(zoo.Twice), fedrep, make=zoo.numbers, task=Regression()),
    "fedrep-in-training": Case(
        zoo.seeded(zoo.InTraining), fedrep, make=zoo.numbers, task=Regression()
    ),
    "fedrep-multi-label": Case(many, fedrep, make=zoo.labels, task=MultiLabel()),
}

# Not in graphs on a GPU, and it is said why.
AWKWARD = {
    how: Case(zoo.seeded(partial(zoo.Awkward, how)), fedrep, make=zoo.numbers, task=Regression())
    for how in zoo.AWKWARD
}


@dataclass
class Outcome:
    """All that can be seen of a few rounds."""

    shared: Params
    server: Slots
    kept: list[Params]  # by client: its personal part and its slots, packed
    losses: list[float]
    sent: list[Params]  # what answers hold beside the shared part, gradients among it
    scores: list[tuple[float, ...]]


def play(engine: Engine, case: Case, rounds: int = 3) -> Outcome:
    """Some rounds with other clients in each, then the evaluations."""
    model = case.model()
    algorithm = replace(case.algorithm, tuning_epochs=3)  # the usual ten show no more
    clients = len(case.sizes)
    parts, plans = algorithm.split(model), algorithm.plans(model)
    shared, server = parts.shared, algorithm.server_state(parts)
    kept = [packed(parts.personal, algorithm.client_state(parts))] * clients
    losses: list[float] = []
    sent: list[Params] = []
    for number in range(rounds):
        chosen = [c for c in range(clients) if c % 3 != number % 3][::-1]
        pairs = [unpacked(kept[c]) for c in chosen]
        job = Job(
            seed=5,
            round=number,
            purpose="train",
            clients=chosen,
            shared=shared,
            personal=[personal for personal, _ in pairs],
            plans=plans,
            server=algorithm.sends(server),
            own=[slots for _, slots in pairs],
            wants_gradient=True,
            finisher=finisher_of(algorithm),
        )
        [locals_] = engine.train([job])
        assert [local.client for local in locals_] == chosen
        assert [local.samples for local in locals_] == [case.sizes[c] for c in chosen]
        answers = []
        for local in locals_:
            reply = on_cpu(local.reply)
            kept[local.client] = packed(reply.personal, reply.own)
            losses.append(local.loss)
            assert GRADIENT in reply.sent
            sent.append(packed({}, reply.sent))
            double = {n: v.double() for n, v in reply.shared.items()}
            answers.append(Answer(local.client, 0.0, double, local.loss, local.samples, reply.sent))
        sent_out = {name: value.double() for name, value in shared.items()}
        shared, server = algorithm.update(sent_out, server, answers, clients)
    personal = [unpacked(each)[0] for each in kept]
    own = [algorithm.own(shared, *unpacked(each)) for each in kept]
    tests = [Job(5, rounds, "evaluate/local", range(clients), *without(shared, own), ())]
    rest, start = partition(combine(shared, personal[0]), algorithm.adapts(model))
    starts, tuning = [start] * clients, (algorithm.tuning(model),)
    tests.append(Job(5, rounds, "evaluate/personalised", range(clients), rest, starts, tuning))
    if not algorithm.personalises:
        everyone: list[Params] = [{}] * clients
        plans = (algorithm.adaptation(model),)
        tests.append(Job(5, rounds, "evaluate/global", range(clients), shared, everyone, plans))
    scores = []
    for found in engine.test(tests):
        assert [score.client for score in found] == list(range(clients))
        scores += [(*score.sums, score.weight) for score in found]
    return Outcome(shared, server, kept, losses, sent, scores)


def without(shared: Params, own: list[Params]) -> tuple[Params, list[Params]]:
    return {name: value for name, value in shared.items() if name not in own[0]}, own


def on_cpu(reply: Reply) -> Reply:
    return part_of_cpu(reply)  # type: ignore[no-any-return]


def part_of_cpu(tree: Any) -> Any:
    return filled(tree, [tensor.cpu() for tensor in flat(tree)])


def distance(one: Outcome, other: Outcome, *, exact: bool = True) -> float:
    """The largest relative difference between two outcomes' tensors and losses."""

    def pairs(a: Params, b: Params) -> list[float]:
        assert a.keys() == b.keys()
        return [relative(a[name], b[name]) for name in a]

    found = pairs(one.shared, other.shared)
    for mine, yours in zip(one.kept, other.kept, strict=True):
        found += pairs(unpacked(mine)[0], unpacked(yours)[0])
    found.append(relative(torch.tensor(one.losses), torch.tensor(other.losses)))
    # A control variate is a difference of weights over a small number: the weights' rounding comes
    # out a hundred to a thousand times larger in it.
    slots = pairs(packed({}, one.server), packed({}, other.server))
    for mine, yours in zip([*one.kept, *one.sent], [*other.kept, *other.sent], strict=True):
        slots += pairs(packed({}, unpacked(mine)[1]), packed({}, unpacked(yours)[1]))
    return max(*found, max(slots, default=0.0) / (1 if exact else 1000))


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    a, b = a.double().cpu(), b.double().cpu()
    return float((a - b).norm() / b.norm().clamp(min=1e-300)) if a.numel() else 0.0

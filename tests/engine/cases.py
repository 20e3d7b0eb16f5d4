"""Small jobs of every shape that engines must agree on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from srpfl.algorithms import HFMAML, Algorithm, FedAvg, FedBABU, FedPer, FedRep, LGFedAvg
from srpfl.data.base import Pooled, Samples, Transform
from srpfl.engine.base import Engine, Job
from srpfl.local import SGD, Adam, Phase, Plan
from srpfl.models import MLP, LeNet5
from srpfl.split import Params, combine, partition, state_of

CLASSES = 4
EQUAL = (12, 12, 12, 12)
UNEQUAL = (3, 31, 12, 7, 18, 31)


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

    def data(self) -> Pooled:
        return images(self.sizes, self.transform)


@dataclass(frozen=True, kw_only=True)
class TwoPhases(FedPer):
    """Everything twice, so that the optimiser's state is carried from phase to phase."""

    def phases(self, shared: frozenset[str], personal: frozenset[str]) -> tuple[Phase, ...]:
        return (Phase(shared | personal, epochs=1), Phase(shared | personal, steps=2))


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
}


@dataclass
class Outcome:
    """All that can be seen of a few rounds."""

    shared: Params
    personal: list[Params]
    losses: list[float]
    gradients: list[Params]
    correct: list[int]


def play(engine: Engine, case: Case, rounds: int = 3) -> Outcome:
    """Some rounds with other clients in each, then the evaluations."""
    model, algorithm = case.model(), case.algorithm
    clients = len(case.sizes)
    shared, initial = partition(state_of(model), algorithm.is_personal(model))
    personal = [initial] * clients
    losses: list[float] = []
    gradients: list[Params] = []
    for number in range(rounds):
        chosen = [c for c in range(clients) if c % 3 != number % 3][::-1]
        parts = [personal[c] for c in chosen]
        plan = algorithm.plan(model)
        job = Job(5, number, "train", chosen, shared, parts, plan, wants_gradient=True)
        answers = engine.train(job)
        assert [answer.client for answer in answers] == chosen
        assert [answer.samples for answer in answers] == [case.sizes[c] for c in chosen]
        for answer in answers:
            personal[answer.client] = answer.personal
            losses.append(answer.loss)
            assert answer.gradient is not None
            gradients.append(answer.gradient)
        shared = {
            n: torch.stack([a.shared[n].double().cpu() for a in answers]).mean(0) for n in shared
        }
    tests = [
        Job(5, rounds, "evaluate/local", range(clients), shared, personal, Plan((), SGD())),
    ]
    adapts = algorithm.adapts(model)
    rest, start = partition(combine(shared, personal[0]), adapts)
    tests.append(
        Job(
            5,
            rounds,
            "evaluate/personalised",
            range(clients),
            rest,
            [start] * clients,
            algorithm.tuning(model),
        )
    )
    if not algorithm.personalises:
        everyone = [{}] * clients
        plan = algorithm.adaptation(model)
        tests.append(Job(5, rounds, "evaluate/global", range(clients), shared, everyone, plan))
    correct = []
    for test in tests:
        scores = engine.test(test)
        assert [score.client for score in scores] == list(range(clients))
        correct += [score.correct for score in scores]
    return Outcome(shared, personal, losses, gradients, correct)


def distance(one: Outcome, other: Outcome) -> float:
    """The largest relative difference between two outcomes' tensors and losses."""

    def pairs(a: Params, b: Params) -> list[float]:
        assert a.keys() == b.keys()
        return [relative(a[name], b[name]) for name in a]

    found = pairs(one.shared, other.shared)
    for mine, yours in zip(
        [*one.personal, *one.gradients], [*other.personal, *other.gradients], strict=True
    ):
        found += pairs(mine, yours)
    found.append(relative(torch.tensor(one.losses), torch.tensor(other.losses)))
    return max(found)


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    a, b = a.double().cpu(), b.double().cpu()
    return float((a - b).norm() / b.norm().clamp(min=1e-300)) if a.numel() else 0.0

"""FedAvg, HF-MAML and methods that split the model, against twins of their papers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import srpfl
from algorithms.quadratic import (
    CLIENTS,
    LR,
    POINTS,
    ROUNDS,
    SAME,
    STEPS,
    TOLERANCE,
    X,
    Y,
    away,
    both_engines,
    gradient,
    local,
    played,
    weights,
)
from algorithms.test_parts_of_models import Layers, begun, gradients
from srpfl.core.rules import HessianFreeMAML

MOMENTUM = 0.5
ONE, TWO = 0, 1  # the representation and the head


class Client:
    """A client's two layers, and SGD with one state for a local update."""

    def __init__(self, number: int, one: np.ndarray, two: np.ndarray, momentum: float) -> None:
        self.number, self.w, self.momentum = number, [one, two], momentum
        self.speed = [np.zeros_like(one), np.zeros_like(two)]

    def train(self, layers: tuple[int, ...], steps: int) -> None:
        for _ in range(steps):
            found = gradients(self.number, *self.w)
            for k in layers:
                self.speed[k] = self.momentum * self.speed[k] + found[k]
            self.w = [w - LR * self.speed[k] if k in layers else w for k, w in enumerate(self.w)]


def twin(shared: int, work: list[tuple[tuple[int, ...], int]], momentum: float = 0.0) -> Any:
    """The shared layer, and everybody's other one, after all rounds of that local work."""
    first = begun()
    common, own = first[shared], [first[1 - shared]] * CLIENTS
    for _ in range(ROUNDS):
        after = []
        for i in range(CLIENTS):
            both = [common, own[i]] if shared == ONE else [own[i], common]
            client = Client(i, *both, momentum)
            for layers, steps in work:
                client.train(layers, steps)
            own[i] = client.w[1 - shared]
            after.append(client.w[shared])
        common = np.mean(after, 0)
    return common, own


RULE = srpfl.SGD(lr=LR, momentum=MOMENTUM, weight_decay=0.0)
HEAD: dict[str, Any] = {"personal": ["two"], "batch_size": POINTS}
CASES: dict[str, tuple[Any, Any]] = {
    "FedRep": (
        srpfl.FedRep(head_epochs=None, body_epochs=None, head_steps=3, body_steps=2, rule=RULE,
                     **HEAD),
        lambda: (ONE, *twin(ONE, [((TWO,), 3), ((ONE,), 2)], MOMENTUM)),
    ),
    "FedPer": (
        srpfl.FedPer(**SAME, personal=["two"]),
        lambda: (ONE, *twin(ONE, [((ONE, TWO), STEPS)])),
    ),
    "FedBABU": (
        srpfl.FedBABU(**SAME, personal=["two"]),
        lambda: (ONE, *twin(ONE, [((ONE,), STEPS)])),
    ),
    "LG-FedAvg": (
        srpfl.LGFedAvg(**SAME, personal=["one"]),
        lambda: (TWO, *twin(TWO, [((ONE, TWO), STEPS)])),
    ),
}  # fmt: skip


@both_engines
@pytest.mark.parametrize("name", CASES)
def test_a_split_model_is_that_of_the_paper(name: str, engine: str) -> None:
    algorithm, expected = CASES[name]
    run = played(algorithm, model=Layers, pretrained=True, engine=engine)
    shared, common, own = expected()
    names = ["one.weight", "two.weight"]
    assert run.state is not None
    assert run.parts is not None
    assert away(run.state.shared[names[shared]].numpy(), common) < TOLERANCE
    for i in range(CLIENTS):
        kept = run.parts.of(i)[names[1 - shared]].numpy()
        assert away(kept, own[i]) < TOLERANCE


@both_engines
def test_fedavg_is_that_of_the_paper(engine: str) -> None:
    """By their samples, too: the first client has one point fewer than the others."""
    x = np.zeros(2)
    for _ in range(ROUNDS):
        x = np.mean([local(i, x) for i in range(CLIENTS)], 0)
    assert away(weights(played(srpfl.FedAvg(**SAME), engine=engine).state), x) < TOLERANCE
    some_x, some_y = [X[0][1:], X[1], X[2]], [Y[0][1:], Y[1], Y[2]]
    w, shares = np.zeros(2), np.array([5, 6, 6]) / 17
    for _ in range(ROUNDS):
        after = []
        for inputs, targets in zip(some_x, some_y, strict=True):
            y = w
            for _ in range(STEPS):
                y = y - LR * 2 * inputs.T @ (inputs @ y - targets) / len(targets)
            after.append(y)
        w = shares @ np.stack(after)
    algorithm = srpfl.FedAvg(weighting="samples", **SAME)
    found = weights(played(algorithm, x=some_x, y=some_y, engine=engine).state)
    assert away(found, w) < TOLERANCE


@both_engines
def test_hf_maml_is_that_of_the_paper(engine: str) -> None:
    """On a quadratic the difference of gradients is the Hessian times the vector exactly, so the
    step is on ∇f(w − α∇f(w)) times I − α∇²f."""
    alpha, beta = 0.02, 0.05
    rule = HessianFreeMAML(alpha=alpha, beta=beta)
    run = played(srpfl.HFMAML(**{**SAME, "rule": rule}), engine=engine)
    x = np.zeros(2)
    for _ in range(ROUNDS):
        after = []
        for i in range(CLIENTS):
            w, hessian = x, 2 * X[i].T @ X[i] / POINTS
            for _ in range(STEPS):
                ahead = gradient(i, w - alpha * gradient(i, w))
                w = w - beta * (np.eye(2) - alpha * hessian) @ ahead
            after.append(w)
        x = np.mean(after, 0)
    assert away(weights(run.state), x) < TOLERANCE

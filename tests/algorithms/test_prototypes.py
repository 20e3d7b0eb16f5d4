"""FedProto: clients send what their classes look like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import srpfl
import tiny
from algorithms.quadratic import both_engines
from algorithms.test_costs import works
from srpfl.algorithms.fedproto import Prototyped
from srpfl.errors import ConfigError

LR, STEPS, ROUNDS, STRENGTH = 0.1, 3, 5, 0.7
WORK: dict[str, Any] = {
    "epochs": None,
    "steps": STEPS,
    "batch_size": 12,
    "rule": srpfl.SGD(lr=LR, weight_decay=0.0),
}


def small() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def paper() -> tuple[torch.Tensor, list[nn.Module]]:
    """Algorithm 1, three clients, with whole batches."""
    data = tiny.data(clients=3)
    models = [small() for _ in range(3)]
    prototypes, known = torch.zeros(3, 5, dtype=torch.float64), torch.zeros(3, dtype=torch.bool)
    for _ in range(ROUNDS):
        found: list[dict[int, torch.Tensor]] = []
        for client, model in enumerate(models):
            x, y = (torch.from_numpy(array) for array in data.train(client))
            x = x.double()
            assert isinstance(model, nn.Sequential)
            body, head = model[:2], model[2]
            for _ in range(STEPS):
                h = body(x)
                apart = (h - prototypes[y]).square().mean(1) * known[y]
                loss = F.cross_entropy(head(h), y) + STRENGTH * apart.mean()
                grads = torch.autograd.grad(loss, list(model.parameters()))
                with torch.no_grad():
                    for value, grad in zip(model.parameters(), grads, strict=True):
                        value -= LR * grad
            h = body(x).detach()
            found.append({int(c): h[y == c].mean(0) for c in y.unique()})
        for c in range(3):
            mine = [each[c] for each in found if c in each]
            if mine:
                prototypes[c], known[c] = torch.stack(mine).mean(0), True
    return prototypes, models


@both_engines
def test_fedproto_is_that_of_the_paper(engine: str) -> None:
    run = tiny.simulate(
        data=tiny.data(clients=3),
        model=small,
        algorithm=srpfl.FedProto(strength=STRENGTH, **WORK),
        participation=srpfl.Everyone(),
        pretrained=True,
        rounds=ROUNDS,
        precision="float64",
        engine=engine,
        evaluate_every=0,
    )
    prototypes, models = paper()
    assert run.state is not None
    assert run.parts is not None
    assert torch.allclose(run.state.shared["prototypes"], prototypes, rtol=0, atol=1e-9)
    for client, model in enumerate(models):
        own = run.parts.of(client)
        assert isinstance(model, nn.Sequential)
        assert torch.allclose(own["body.0.weight"], model[0].weight, rtol=0, atol=1e-9)
        assert torch.allclose(own["head.bias"], model[2].bias, rtol=0, atol=1e-9)
        assert not own["probe"].any()


def test_no_weights_are_sent() -> None:
    [work] = works(srpfl.FedProto(), rounds=1)
    assert work.down == work.up == 4 * (3 * 5 + 3)  # prototypes of three classes, and counts
    model = srpfl.FedProto().prepared(tiny.model())
    assert set(srpfl.FedProto().split(model).shared) == {"prototypes", "count"}


def test_a_class_that_a_client_has_not_seen_does_not_count() -> None:
    algorithm = srpfl.FedProto()
    answers = [
        _Answer(0, [[1.0, 1.0], [9.0, 9.0]], [4.0, 0.0]),
        _Answer(1, [[3.0, 5.0], [2.0, 2.0]], [1.0, 3.0]),
    ]
    sent = {"prototypes": torch.zeros(2, 2), "count": torch.zeros(2)}
    after, _ = algorithm.update(sent, {}, answers, 2)
    assert after["prototypes"].tolist() == [[2.0, 3.0], [2.0, 2.0]]
    by_samples = srpfl.FedProto(weighting="samples").update(sent, {}, answers, 2)[0]
    assert np.allclose(by_samples["prototypes"][0], [7 / 5, 9 / 5])
    kept = {"prototypes": torch.ones(2, 2), "count": torch.ones(2)}
    lone = _Answer(0, [[0.0, 0.0], [0.0, 0.0]], [2.0, 0.0])
    assert algorithm.update(kept, {}, [lone], 2)[0]["prototypes"].tolist() == [[0, 0], [1, 1]]


class _Answer:
    def __init__(self, client: int, prototypes: list[list[float]], count: list[float]) -> None:
        self.client, self.samples, self.sent, self.age, self.credit = client, 1, {}, 0, 1.0
        self.shared = {"prototypes": torch.tensor(prototypes), "count": torch.tensor(count)}


def test_outputs_are_the_models_own_when_it_is_tested() -> None:
    plain = tiny.model().eval()
    around = Prototyped(plain, 1.0).eval()
    x = torch.randn(7, 4)
    assert torch.equal(around(x), plain(x))


def test_other_tasks_are_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match="FedProto is for classifiers, and the task is Regress"):
        tiny.simulate(algorithm=srpfl.FedProto(), task=srpfl.Regression())

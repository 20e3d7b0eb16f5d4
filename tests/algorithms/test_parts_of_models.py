"""Clients that train some of the layers, or a narrower network: partial training and HeteroFL."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import srpfl
import tiny
from algorithms.quadratic import (
    CLIENTS,
    LR,
    POINTS,
    ROUNDS,
    SAME,
    TOLERANCE,
    X,
    Y,
    away,
    both_engines,
    played,
)
from algorithms.test_costs import works


class Layers(nn.Module):
    """Two linear layers without anything between them."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(2, 4, bias=False, dtype=torch.float64)
        self.two = nn.Linear(4, 1, bias=False, dtype=torch.float64)
        rng = np.random.default_rng(3)
        self.one.weight = nn.Parameter(torch.from_numpy(0.5 * rng.normal(size=(4, 2))))
        self.two.weight = nn.Parameter(torch.from_numpy(0.5 * rng.normal(size=(1, 4))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.two(self.one(x))
        return found


def begun() -> list[np.ndarray]:
    return [value.detach().numpy().copy() for value in Layers().parameters()]


def gradients(client: int, one: np.ndarray, two: np.ndarray) -> list[np.ndarray]:
    error = 2 * (X[client] @ one.T @ two.T - Y[client][:, None]) / POINTS
    return [two.T @ error.T @ X[client], error.T @ X[client] @ one.T]


def trained(client: int, start: list[np.ndarray], masks: list[Any]) -> list[np.ndarray]:
    now = start
    for _ in range(SAME["steps"]):
        found = gradients(client, *now)
        now = [w - LR * mask * g for w, g, mask in zip(now, found, masks, strict=True)]
    return now


def found(run: srpfl.Run) -> list[np.ndarray]:
    assert run.state is not None
    return [run.state.shared[f"{name}.weight"].numpy() for name in ("one", "two")]


@both_engines
def test_partial_training_averages_a_layer_over_those_who_trained_it(engine: str) -> None:
    algorithm = srpfl.PartialTraining(**SAME)
    run = played(algorithm, model=Layers, pretrained=True, engine=engine)
    now = begun()
    for round in range(ROUNDS):
        answers: list[list[np.ndarray]] = [[], []]
        for client in range(CLIENTS):
            layer = (client + round) % 2
            after = trained(client, now, [float(layer == 0), float(layer == 1)])
            answers[layer].append(after[layer])
        now = [np.mean(mine, 0) for mine in answers]
    assert max(map(away, found(run), now)) < TOLERANCE


def test_training_all_layers_is_fedavg() -> None:
    one = tiny.simulate(algorithm=srpfl.PartialTraining(layers=3), rounds=3)
    other = tiny.simulate(algorithm=srpfl.FedAvg(), rounds=3)
    assert one.state is not None
    assert other.state is not None
    assert tiny.same(one.state.shared, other.state.shared)


@both_engines
def test_heterofl_averages_what_clients_have(engine: str) -> None:
    algorithm = srpfl.HeteroFL(widths=(1.0, 0.5), sizes=(0, 1, 1), **SAME)
    run = played(algorithm, model=Layers, pretrained=True, engine=engine)
    now = begun()
    for _ in range(ROUNDS):
        answers = []
        for client, units in enumerate((4, 2, 2)):
            narrow = [now[0][:units], now[1][:, :units]]  # a network of its own
            answers.append(trained(client, narrow, [1.0, 1.0]))
        full = answers[0]
        for k, cut in enumerate((np.s_[:2], np.s_[:, :2])):
            after = full[k].copy()  # the other half is the first client's alone
            after[cut] = np.mean([answers[0][k][cut], answers[1][k], answers[2][k]], 0)
            now[k] = after
    assert max(map(away, found(run), now)) < TOLERANCE


def test_what_nobody_has_stays() -> None:
    algorithm = srpfl.HeteroFL(widths=(0.5,), **SAME)
    one, two = found(played(algorithm, model=Layers, pretrained=True))
    before = begun()
    assert np.array_equal(one[2:], before[0][2:])
    assert np.array_equal(two[:, 2:], before[1][:, 2:])
    assert not np.array_equal(one[:2], before[0][:2])


def test_heterofl_in_full_width_is_fedavg() -> None:
    one = tiny.simulate(algorithm=srpfl.HeteroFL(widths=(1.0,)), rounds=3)
    other = tiny.simulate(algorithm=srpfl.FedAvg(), rounds=3)
    assert one.state is not None
    assert other.state is not None
    for name, value in other.state.shared.items():
        assert torch.allclose(one.state.shared[name], value, atol=1e-6)  # means, summed otherwise


def test_a_convolution_is_cut_by_channels() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)
    )
    algorithm = srpfl.HeteroFL(widths=(0.5,))
    parts = algorithm.split(model)
    server = algorithm.server_state(parts)
    kept = 2 * 9 + 2 + 2 + 2 + 3 * 8 + 3
    whole = 4 * 9 + 4 + 4 + 4 + 3 * 16 + 3
    assert algorithm.portion(parts.shared, server, 0).work == kept / whole


def test_a_slow_client_takes_less_time_with_a_smaller_model() -> None:
    # Of equal clients those with a quarter of the width answer first, and send less.
    algorithm = srpfl.HeteroFL(sizes=(0, 0, 1, 1, 2, 2))
    [work] = works(algorithm, rounds=1)
    whole = 4 * 8 + 8 + 8 * 5 + 5 + 5 * 3 + 3
    half = 4 * 4 + 4 + 4 * 3 + 3 + 3 * 3 + 3
    assert np.array(work.share)[[0, 2]].tolist() == [1.0, half / whole]
    assert np.array(work.up)[[0, 2]].tolist() == [4 * whole, 4 * half]
    run = tiny.simulate(
        algorithm=algorithm, clock=srpfl.clock.Equal(), participation=srpfl.FirstN(n=2), rounds=1
    )
    assert run.rounds[0].participants == [4, 5]
    plain = tiny.simulate(clock=srpfl.clock.Equal(), participation=srpfl.FirstN(n=2), rounds=1)
    assert run.rounds[0].duration < 0.4 * plain.rounds[0].duration


def test_a_model_that_cannot_be_cut_is_refused() -> None:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(4, 3))
    with pytest.raises(srpfl.SrpflError, match="cannot make '0'"):
        srpfl.HeteroFL().plans(model)
    with pytest.raises(srpfl.SrpflError, match="widths up to 1"):
        srpfl.HeteroFL(sizes=(3,))

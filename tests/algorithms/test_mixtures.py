"""Models and data that are mixed, MAPPER, ActPerFL and Dapper, against twins of their papers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import srpfl
import tiny
from algorithms.quadratic import (
    CLIENTS,
    LR,
    ROUNDS,
    SAME,
    STEPS,
    TOLERANCE,
    X,
    Y,
    away,
    gradient,
    local,
    own,
    played,
    weights,
)
from srpfl.options.config import Config
from srpfl.options.experiment import experiment

ENGINES = ["loop", "vectorised"]
GRID = (0.25, 0.5, 0.75)


def loss(client: int, w: np.ndarray) -> float:
    return float(np.mean((X[client] @ w - Y[client]) ** 2))


def mapper(grid: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray, list[int], set[int]]:
    w, v, best = np.zeros(2), np.zeros((CLIENTS, len(grid), 2)), [0] * CLIENTS
    seen: set[int] = set()
    for _ in range(ROUNDS):
        after = []
        for i in range(CLIENTS):
            y = w
            for _ in range(STEPS):
                mixed = [a * v[i, k] + (1 - a) * y for k, a in enumerate(grid)]
                best[i] = int(np.argmin([loss(i, m) for m in mixed]))
                seen.add(best[i])
                for k, a in enumerate(grid):
                    v[i, k] = v[i, k] - LR * a * gradient(i, mixed[k])
                y = y - LR * (1 - grid[best[i]]) * gradient(i, mixed[best[i]])
            after.append(y)
        w = np.mean(after, 0)
    return w, v, best, seen


@pytest.mark.parametrize("engine", ENGINES)
def test_mapper_is_that_of_the_paper(engine: str) -> None:
    algorithm = srpfl.MAPPER(grid=GRID, **SAME)
    run = played(algorithm, engine=engine)
    w, v, best, seen = mapper(GRID)
    assert run.state is not None
    assert run.parts is not None
    assert away(weights(run.state), w) < TOLERANCE
    for i in range(CLIENTS):
        slots = run.parts.slots_of(i)
        assert away(slots["v"]["line.weight"][:, 0].numpy(), v[i]) < TOLERANCE
        mixed = GRID[best[i]] * v[i, best[i]] + (1 - GRID[best[i]]) * w
        found = algorithm.own(run.state.shared, {}, slots)["line.weight"][0].numpy()
        assert away(found, mixed) < TOLERANCE
    assert len(seen) > 1  # the best one changes


def test_mapper_with_one_end_of_the_grid_is_fedavg_and_with_the_other_local_training() -> None:
    shared = weights(played(srpfl.FedAvg(**SAME)).state)
    assert away(weights(played(srpfl.MAPPER(grid=(0.0,), **SAME)).state), shared) < TOLERANCE
    run = played(srpfl.MAPPER(grid=(1.0,), **SAME))
    assert run.parts is not None
    alone = np.zeros((CLIENTS, 2))
    for _ in range(ROUNDS):
        alone = np.stack([local(i, alone[i]) for i in range(CLIENTS)])
    found = [run.parts.slots_of(i)["v"]["line.weight"][0, 0].numpy() for i in range(CLIENTS)]
    assert away(np.stack(found), alone) < TOLERANCE


def actperfl() -> tuple[np.ndarray, np.ndarray]:
    x, theta = np.zeros(2), np.zeros((CLIENTS, 2))
    between, within = np.inf, np.zeros(CLIENTS)  # σ², σ_i²
    rho = np.zeros(CLIENTS)
    for _ in range(ROUNDS):
        for i in range(CLIENTS):
            init = (x - rho[i] * theta[i]) / (1 - rho[i])
            y, iterates = init, []
            for _ in range(STEPS):
                y = y - LR * gradient(i, y)
                iterates.append(y)
            within[i] = np.var(iterates, 0).mean()
            share = 1.0 if np.isinf(between) else between / (between + within[i])
            theta[i] = init + share * (y - init)
        between = np.var(theta, 0, ddof=1).mean()
        each = 1 / (between + within)
        rho = each / each.sum()
        x = rho @ theta
    return x, theta


@pytest.mark.parametrize("engine", ENGINES)
def test_actperfl_follows_its_hierarchical_model(engine: str) -> None:
    run = played(srpfl.ActPerFL(**SAME), engine=engine)
    x, theta = actperfl()
    assert away(own(run, "theta"), theta) < TOLERANCE
    assert away(weights(run.state), x) < TOLERANCE


def test_the_less_clients_differ_the_less_actperfl_leaves_the_shared_model() -> None:
    same_x, same_y = [X[0]] * CLIENTS, [Y[0]] * CLIENTS
    run = played(srpfl.ActPerFL(**SAME), x=same_x, y=same_y)
    assert away(own(run, "theta"), weights(run.state)) < 1e-3  # all the same, and all shared
    assert away(own(played(srpfl.ActPerFL(**SAME)), "theta"), weights(run.state)) > 0.1


def test_interpolated_data_are_a_clients_own_and_some_of_all() -> None:
    alone = tiny.data()
    mixed = srpfl.data.Interpolated(alone, share=0.25, seed=3)
    everything = {tuple(row) for client in range(6) for row in alone.train(client).x}
    for client in range(6):
        x, y = mixed.train(client)
        assert len(y) == mixed.size(client) == 4 * alone.size(client)
        assert np.array_equal(x[: alone.size(client)], alone.train(client).x)
        assert {tuple(row) for row in x} <= everything
        assert np.array_equal(mixed.train(client).x, x)  # the same again
        assert np.array_equal(mixed.test(client).x, alone.test(client).x)
    whole = srpfl.data.Interpolated(alone, share=1.0)
    assert np.array_equal(whole.train(2).x, alone.train(2).x)
    with pytest.raises(srpfl.SrpflError, match="own share"):
        srpfl.data.Interpolated(alone, share=0.0)


def test_dapper_shares_fedavgs_model_and_adapts_all_of_it() -> None:
    data = srpfl.data.Interpolated(tiny.data(), share=0.5)
    one = tiny.simulate(algorithm=srpfl.Dapper(), data=data, rounds=2)
    other = tiny.simulate(algorithm=srpfl.FedAvg(), data=data, rounds=2)
    assert one.state is not None
    assert other.state is not None
    assert tiny.same(one.state.shared, other.state.shared)
    plan = srpfl.Dapper().tuning(tiny.model())
    assert plan.phases[0].trains == {name for name, _ in tiny.model().named_parameters()}
    assert one.evaluations[-1].kind == "personalised"


def test_on_a_quadratic_dapper_minimises_the_mixture() -> None:
    """One client's own data against a share of everyone's: between its optimum and the others'."""

    def solved(share: float) -> np.ndarray:
        pool: Any = _Rows(X, Y)
        x, y = srpfl.data.Interpolated(pool, share=share).train(0)
        return np.linalg.lstsq(x, y, rcond=None)[0]

    mine = np.linalg.lstsq(X[0], Y[0], rcond=None)[0]
    assert away(solved(1.0), mine) < TOLERANCE
    all_x, all_y = X.reshape(-1, 2), Y.reshape(-1)
    everyone = np.linalg.lstsq(all_x, all_y, rcond=None)[0]
    assert away(solved(0.001), everyone) < 0.05  # of 6000 draws from 18 points


class _Rows:
    """Data of arrays by client."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.x, self.y = x, y
        self.clients, self.classes = len(x), 0

    def size(self, client: int) -> int:
        return len(self.y[client])

    def train(self, client: int) -> srpfl.data.Samples:
        return srpfl.data.Samples(self.x[client], self.y[client])


def test_the_command_mixes_dappers_data_and_sizes_networks_by_speed() -> None:
    settings = {"algorithm": {"share": 0.25}}
    made = experiment(Config(method="dapper", data="digits", clients=6, set=settings))
    plain = experiment(Config(method="fedavg", data="digits", clients=6))
    assert made["data"].size(0) == 4 * plain["data"].size(0)
    sized = experiment(Config(method="heterofl", data="digits", clients=6))
    clock, ones = sized["clock"], np.ones(6, dtype=int)
    work = srpfl.clock.Work(ones, ones, 0, 0)
    times = clock.times(0, 0, np.arange(6), 6, work)
    sizes = np.array(sized["algorithm"].sizes)
    assert sorted(sizes) == [0, 0, 1, 1, 2, 2]
    assert times[sizes == 0].max() < times[sizes == 1].min()
    assert times[sizes == 1].max() < times[sizes == 2].min()
    assert torch.is_tensor(sized["algorithm"].server_state(sized_split(sized))["rows"]["fc1.bias"])


def sized_split(made: dict[str, Any]) -> Any:
    return made["algorithm"].split(made["model"]())

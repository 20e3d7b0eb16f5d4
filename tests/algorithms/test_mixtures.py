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
    POINTS,
    ROUNDS,
    SAME,
    STEPS,
    TOLERANCE,
    Start,
    X,
    Y,
    away,
    both_engines,
    gradient,
    local,
    loss,
    optimum,
    own,
    played,
    weights,
)
from srpfl.algorithms.mapper import BestMixture
from srpfl.core.rules import LossAndGradient
from srpfl.data.base import Pooled
from srpfl.options.config import Config
from srpfl.options.experiment import experiment

GRID = (0.25, 0.5, 0.75)


def mapper(grid: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray, list[int], set[int]]:
    w, v, best = np.zeros(2), np.zeros((CLIENTS, len(grid), 2)), [0] * CLIENTS
    seen: set[int] = set()
    for _ in range(ROUNDS):
        after = []
        for i in range(CLIENTS):
            y, losses = w, np.zeros(len(grid))
            for _ in range(STEPS):
                mixed = [a * v[i, k] + (1 - a) * y for k, a in enumerate(grid)]
                losses += [loss(i, m) for m in mixed]
                best[i] = int(np.argmin(losses))
                seen.add(best[i])
                for k, a in enumerate(grid):
                    v[i, k] = v[i, k] - LR * a * gradient(i, mixed[k])
                y = y - LR * (1 - grid[best[i]]) * gradient(i, mixed[best[i]])
            after.append(y)
        w = np.mean(after, 0)
    return w, v, best, seen


@both_engines
def test_mapper_is_what_its_docstring_says(engine: str) -> None:
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


def test_mapper_comes_to_the_least_value_of_the_papers_objective() -> None:
    """With a local model of its own every client's mixture can be its own best line, whatever λ is:
    the objective is least there, and with any λ above zero descent comes to it."""
    rule = srpfl.SGD(lr=0.15, weight_decay=0.0)
    algorithm = srpfl.MAPPER(grid=GRID, **{**SAME, "steps": 20, "rule": rule})
    run = played(algorithm, rounds=12, engine="loop")
    assert run.state is not None
    assert run.parts is not None
    for i in range(CLIENTS):
        found = algorithm.own(run.state.shared, {}, run.parts.slots_of(i))["line.weight"][0].numpy()
        best = np.linalg.lstsq(X[i], Y[i], rcond=None)[0]
        assert away(found, best) < 0.005 < 0.5 < away(best, optimum()), i  # what 240 steps leave


def test_mappers_choice_is_by_the_losses_of_the_whole_round() -> None:
    """Of two batches the second is fitted best by the mixture that the first one speaks against,
    and more strongly."""
    rule = BestMixture(rule=srpfl.SGD(lr=1e-9, weight_decay=0.0), grid=(0.25, 0.75))
    slots = srpfl.MAPPER(grid=(0.25, 0.75)).client_state(srpfl.FedAvg().split(Line()))
    state = rule.start({"w": torch.zeros(1)}, {"v": {"w": torch.ones(2, 1)}, "best": slots["best"]})
    for aim, wins in ((-4.0, 0), (1.0, 0)):  # mixtures are at 0.25 and 0.75

        def both(at: Any, aim: float = aim) -> Any:
            return (at["w"] - aim).square().sum(), {"w": 2 * (at["w"] - aim)}

        _, state = rule.step(LossAndGradient(both), {"w": torch.zeros(1)}, state)
        assert int(state["best"]["best"].argmax()) == wins


class Line(torch.nn.Module):
    """One weight."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(1))


def actperfl() -> tuple[np.ndarray, np.ndarray]:
    x, theta = np.zeros(2), np.zeros((CLIENTS, 2))
    between, within = np.inf, np.zeros(CLIENTS)  # σ², σ_i²
    rho, each = np.zeros(CLIENTS), np.zeros(CLIENTS)
    for _ in range(ROUNDS):
        others = each.sum() - each
        for i in range(CLIENTS):
            init = (x - rho[i] * theta[i]) / (1 - rho[i])
            y, iterates = init, []
            for _ in range(STEPS):
                y = y - LR * gradient(i, y)
                iterates.append(y)
            within[i] = np.var(iterates, 0).mean()
            far = np.inf if np.isinf(between) else between + 1 / others[i]
            share = 1.0 if np.isinf(far) else far / (far + within[i])
            theta[i] = init + share * (y - init)
        between = np.var(theta, 0, ddof=1).mean()
        each = 1 / (between + within)
        rho = each / each.sum()
        x = rho @ theta
    return x, theta


@both_engines
def test_actperfl_is_what_its_docstring_says(engine: str) -> None:
    run = played(srpfl.ActPerFL(**SAME), engine=engine)
    x, theta = actperfl()
    assert away(own(run, "theta"), theta) < TOLERANCE
    assert away(weights(run.state), x) < TOLERANCE


def posterior(client: int, seen: np.ndarray, between: float, within: np.ndarray) -> np.ndarray:
    """E[θ_i | all that was seen] of θ_k ~ N(θ, σ²) and seen_k ~ N(θ_k, σ_k²) with nothing known of
    θ: the joint density's normal equations, in θ and all θ_k."""
    left, right = np.zeros((CLIENTS + 1,) * 2), np.zeros((CLIENTS + 1, seen.shape[1]))
    for k in range(CLIENTS):
        left[k, k] = 1 / within[k] + 1 / between
        left[k, -1] = left[-1, k] = -1 / between
        right[k] = seen[k] / within[k]
    left[-1, -1] = CLIENTS / between
    found: np.ndarray = np.linalg.solve(left, right)[client]
    return found


def test_actperfls_models_are_the_posterior_means_of_its_hierarchical_model() -> None:
    """Given what the others sent before, and what a client has found by itself."""
    before = played(srpfl.ActPerFL(**SAME), rounds=3, engine="loop")
    after = played(srpfl.ActPerFL(**SAME), rounds=4, engine="loop")
    assert before.state is not None
    assert before.parts is not None
    assert after.parts is not None
    spread = before.state.server["spread"]
    between, sent = 1 / float(spread["precision"]), own(before, "theta")

    def variances(run: srpfl.Run) -> np.ndarray:
        assert run.parts is not None
        slots = [run.parts.slots_of(i)["last"] for i in range(CLIENTS)]
        return np.array([float(each["variance"]) for each in slots])

    for i in range(CLIENTS):
        others = [k for k in range(CLIENTS) if k != i]
        each = 1 / (between + variances(before))
        y = local(i, each[others] @ sent[others] / each[others].sum())
        seen, within = sent.copy(), variances(before)
        seen[i], within[i] = y, variances(after)[i]
        assert away(own(after, "theta")[i], posterior(i, seen, between, within)) < TOLERANCE


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


@both_engines
def test_dapper_is_fedavg_and_then_descent_on_each_clients_mixture(engine: str) -> None:
    """What a client is judged by: its own points and a share of all, from the shared model on."""
    pool = srpfl.data.Samples(np.concatenate(X), np.concatenate(Y))
    parts = np.split(np.arange(CLIENTS * POINTS), CLIENTS)
    plain: Any = Pooled("quadratic", pool, pool, parts, parts, 0)
    data = srpfl.data.Interpolated(plain, share=0.5)
    size = 2 * POINTS
    algorithm = srpfl.Dapper(**{**SAME, "batch_size": size}, tuning_epochs=3)
    run = srpfl.simulate(data=data, model=Start, algorithm=algorithm, task=srpfl.Regression(),
                         rounds=ROUNDS, precision="float64", evaluate_every=ROUNDS,
                         engine=engine)  # fmt: skip
    mixed = [data.train(i) for i in range(CLIENTS)]

    def slope(i: int, w: np.ndarray) -> np.ndarray:
        return 2 * mixed[i].x.T @ (mixed[i].x @ w - mixed[i].y) / size

    w = np.zeros(2)
    for _ in range(ROUNDS):
        after = []
        for i in range(CLIENTS):
            y = w
            for _ in range(STEPS):
                y = y - LR * slope(i, y)
            after.append(y)
        w = np.mean(after, 0)
    assert away(weights(run.state), w) < TOLERANCE
    expected = []
    for i in range(CLIENTS):
        y, speed = w, np.zeros(2)
        for _ in range(3):  # fine-tuning has momentum with every method
            speed = 0.5 * speed + slope(i, y)
            y = y - LR * speed
        expected.append(loss(i, y) ** 0.5)
    assert run.evaluations[-1].clients == pytest.approx(expected, rel=1e-9)


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

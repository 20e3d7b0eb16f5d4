"""Algorithm 2 against exact references: SciPy's angles, a plain transcription, closed forms."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import subspace_angles

from srpfl import linear
from srpfl.errors import ConfigError
from srpfl.linear import Problem, problem

SMALL = Problem(clients=12, dim=7, rank=3, samples=9, noise=0.5, seed=4)


@settings(deadline=None)
@given(st.integers(1, 8), st.data())
def test_the_distance_is_the_sine_of_the_largest_principal_angle(
    dim: int, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(1, dim))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    one, two = rng.standard_normal((2, dim, rank))
    expected = np.sin(subspace_angles(one, two).max())
    # With rank = dim the true value is 0, and both are it up to rounding.
    assert linear.distance(one, two) == pytest.approx(expected, rel=1e-7, abs=1e-12)


def test_the_distance_does_not_depend_on_the_basis_or_on_the_order() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.standard_normal((2, 6, 2))
    mixed = two @ rng.standard_normal((2, 2))
    assert linear.distance(one, mixed) == pytest.approx(linear.distance(two, one), rel=1e-9)


def test_the_truth_is_as_assumed() -> None:
    b = SMALL.representation
    assert b.T @ b == pytest.approx(np.eye(3))
    assert np.linalg.norm(SMALL.heads, axis=1) == pytest.approx(np.full(12, np.sqrt(3)))


def test_the_labels_are_the_linear_model_of_the_inputs() -> None:
    quiet = Problem(clients=5, dim=4, rank=2, samples=6, noise=0.0)
    clients = np.array([3, 0])
    x, y = quiet.batch("train", 2, clients)
    for i, client in enumerate(clients):
        assert y[i] == pytest.approx(x[i] @ quiet.representation @ quiet.heads[client])


def test_inputs_are_standard_normal_and_labels_have_the_noise_asked_for() -> None:
    case = Problem(clients=200, dim=5, rank=2, samples=100, noise=2.0)
    clients = np.arange(200)
    x, y = case.batch("train", 0, clients)
    flat = x.reshape(-1, 5)
    count = len(flat)  # 20,000 samples: a standard error of 0.7 %, and five of them are allowed
    assert np.abs(flat.mean(0)).max() < 5 / np.sqrt(count)
    assert np.abs(flat.T @ flat / count - np.eye(5)).max() < 5 * np.sqrt(2 / count)
    clean = np.einsum("imd,dk,ik->im", x, case.representation, case.heads)
    assert (y - clean).std() == pytest.approx(2.0, rel=5 / np.sqrt(2 * count))


def test_a_client_draws_the_same_batch_in_any_company() -> None:
    together, _ = SMALL.batch("train", 3, np.array([0, 5, 11]))
    alone, _ = SMALL.batch("train", 3, np.array([5]))
    assert np.array_equal(together[1], alone[0])


def test_rounds_clients_and_purposes_draw_different_batches() -> None:
    draws = [
        SMALL.batch(purpose, round, np.array([client]))[0].ravel()[0]
        for purpose in ("train", "start")
        for round in range(3)
        for client in range(3)
    ]
    assert len(set(draws)) == len(draws)


def test_nothing_depends_on_the_size_of_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = np.arange(12)
    b = linear.method_of_moments(SMALL)
    whole, losses = linear.updates(SMALL, 0, clients, b, 0.1)
    monkeypatch.setattr(problem, "CHUNK", 5 * SMALL.samples * (SMALL.dim + 1))
    assert linear.distance(b, linear.method_of_moments(SMALL)) < 1e-7
    pieces, piece_losses = linear.updates(SMALL, 0, clients, b, 0.1)
    assert np.array_equal(whole, pieces)
    assert np.array_equal(losses, piece_losses)


def test_memory_is_that_of_a_chunk_and_not_of_all_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem, "CHUNK", 2**15)
    case = Problem(clients=10_000, dim=20, rank=2, samples=5)
    _ = case.heads
    everything = case.clients * case.samples * (case.dim + 1) * 8
    tracemalloc.start()
    linear.method_of_moments(case)
    linear.updates(case, 0, np.arange(500), case.representation, 0.1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < everything / 5


def test_the_start_is_the_transcribed_method_of_moments() -> None:
    moments = np.zeros((7, 7))
    for client in range(12):
        x, y = SMALL.batch("start", 0, np.array([client]))
        for j in range(9):
            moments += y[0, j] ** 2 * np.outer(x[0, j], x[0, j]) / 9
    u, _, _ = np.linalg.svd(moments / 12)
    start = linear.method_of_moments(SMALL)
    assert start.T @ start == pytest.approx(np.eye(3))
    assert linear.distance(u[:, :3], start) < 1e-7


def test_a_round_is_the_transcribed_equations() -> None:
    """(w_update), (B_update) and the QR, client by client."""
    b, eta, participants = linear.method_of_moments(SMALL), 0.2, [7, 2, 9, 4]
    step = np.zeros((7, 3))
    for client in participants:
        (x,), (y,) = SMALL.batch("train", 5, np.array([client]))
        w = np.linalg.inv(b.T @ x.T @ x @ b / 9) @ (b.T @ x.T @ y / 9)
        step += x.T @ np.outer(x @ b @ w - y, w)
    q, r = np.linalg.qr(b - eta / (9 * 4) * step)
    expected = q * np.sign(np.diag(r))

    updated, _ = linear.updates(SMALL, 5, np.array(participants), b, eta)
    assert linear.orthonormal(updated.mean(0)) == pytest.approx(expected, abs=1e-12)


def test_the_update_descends_the_loss_with_its_half_and_mean() -> None:
    """A finite difference of 1/(2m) Σ (y − wᵀBᵀx)² pins the factor of the gradient."""
    b, client = linear.method_of_moments(SMALL), np.array([3])
    (x,), (y,) = SMALL.batch("train", 1, client)
    (w,) = linear.best_heads(x[None] @ b, y[None])

    def loss(at: np.ndarray) -> float:
        return float(((y - x @ at @ w) ** 2).sum() / (2 * SMALL.samples))

    (updated,), (value,) = linear.updates(SMALL, 1, client, b, 1.0)
    assert value == pytest.approx(loss(b))
    nudge = np.zeros_like(b)
    nudge[4, 2] = 1e-6
    slope = (loss(b + nudge) - loss(b - nudge)) / 2e-6
    assert (b - updated)[4, 2] == pytest.approx(slope, rel=1e-6)


def test_the_best_head_is_the_least_squares_solution() -> None:
    x, y = SMALL.batch("train", 0, np.array([1]))
    features = x @ SMALL.representation
    expected, *_ = np.linalg.lstsq(features[0], y[0], rcond=None)
    assert linear.best_heads(features, y)[0] == pytest.approx(expected)


def test_the_spread_of_heads_is_that_of_the_scaled_matrix() -> None:
    heads = SMALL.heads[[1, 5, 6, 8]]
    low, high = linear.head_spread(heads)
    gram = np.linalg.eigvalsh(heads.T @ heads / 4)
    assert (low**2, high**2) == pytest.approx((gram[0], gram[-1]))
    assert linear.head_spread(SMALL.heads[:2])[0] == 0  # two heads do not span three dimensions


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rank": 8}, "rank"),
        ({"rank": 0}, "rank"),
        ({"samples": 2}, "samples"),
        ({"clients": 0}, "clients"),
        ({"dim": 0}, "dim"),
        ({"noise": -1.0}, "noise"),
        ({"noise": float("nan")}, "noise"),
        ({"noise": 1e200}, "noise"),
        ({"seed": -1}, "seed"),
    ],
)
def test_a_bad_problem_is_refused_in_one_sentence(change: dict[str, int], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as refusal:
        Problem(**{"clients": 12, "dim": 7, "rank": 3, "samples": 9} | change)  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)

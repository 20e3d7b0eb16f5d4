"""Algorithm 2, SRPFL in the linear representation case: what server and clients compute."""

from __future__ import annotations

import numpy as np

from srpfl.linear.problem import Array, Clients, Problem


def method_of_moments(problem: Problem) -> Array:
    """The initial B: the top k eigenvectors of the clients' mean of (1/m) Σ y² x xᵀ.

    >>> problem = Problem(clients=200, dim=5, rank=2, samples=20)
    >>> bool(distance(problem.representation, method_of_moments(problem)) < 0.5)
    True
    """
    total = np.zeros((problem.dim, problem.dim))
    everyone = np.arange(problem.clients)
    for chunk in problem.chunks(problem.clients):
        x, y = problem.batch("start", 0, everyone[chunk])
        weighted = x * y[:, :, None]  # so that their products are y² x xᵀ
        flat = weighted.reshape(-1, problem.dim)
        total += flat.T @ flat
    _, vectors = np.linalg.eigh(total)  # eigenvalues ascend
    return vectors[:, -problem.rank :]


def updates(
    problem: Problem, round: int, clients: Clients, b: Array, eta: float
) -> tuple[Array, Array]:
    """B_i = B − η ∇_B f_i(w_i, B) of each client, at its own best head, and its loss f_i(w_i, B).

    With f_i = 1/(2m) Σ (y − w_iᵀ Bᵀ x)² the gradient is (1/m) Xᵀ (X B w_i − y) w_iᵀ. Clients are
    computed each on its own, so nothing depends on how they are grouped.
    """
    updated = np.empty((len(clients), *b.shape))
    losses = np.empty(len(clients))
    for chunk in problem.chunks(len(clients)):
        x, y = problem.batch("train", round, clients[chunk])
        features = x @ b
        heads = best_heads(features, y)
        residuals = (features @ heads[:, :, None])[:, :, 0] - y
        slopes = (residuals[:, None, :] @ x)[:, 0, :] / problem.samples  # (1/m) Xᵀ (X B w − y)
        with np.errstate(over="ignore"):  # the round loop refuses what is not finite
            updated[chunk] = b - eta * slopes[:, :, None] * heads[:, None, :]
        losses[chunk] = (residuals**2).mean(axis=1) / 2
    return updated, losses


def best_heads(features: Array, y: Array) -> Array:
    """argmin over w of ‖features·w − y‖ for every client: a k x k system each (w_update)."""
    transposed = features.swapaxes(1, 2)
    solutions = np.linalg.solve(transposed @ features, transposed @ y[:, :, None])
    return np.asarray(solutions[:, :, 0])


def orthonormal(b: Array) -> Array:
    """The Q of B = QR, which is what the server carries on and sends (Bnorm_update).

    It is the Q with a positive diagonal of R. LAPACK's may change a column's sign in every round,
    and then the successive B are not near each other, though the spaces are.
    """
    q, r = np.linalg.qr(b)
    return np.asarray(q * np.where(np.diag(r) < 0, -1.0, 1.0))


def distance(b1: Array, b2: Array) -> float:
    """The principal-angle distance of two column spaces: ‖(I − Q1 Q1ᵀ) Q2‖₂, from 0 to 1.

    >>> plane, line = np.eye(3)[:, :2], np.eye(3)[:, 2:]
    >>> distance(plane, plane), round(distance(line, line + plane[:, :1]), 4)
    (0.0, 0.7071)
    """
    q1, q2 = orthonormal(b1), orthonormal(b2)
    return float(np.linalg.norm(q2 - q1 @ (q1.T @ q2), ord=2))


def head_spread(heads: Array) -> tuple[float, float]:
    """σmin and σmax of (1/√n) W*, for the n heads that are given.

    The theory means the extremes over all subsets of at least n0 clients. Nobody can compute
    those; a run reports the extremes over the participants it actually used.
    """
    values = np.linalg.svd(heads / np.sqrt(len(heads)), compute_uv=False)
    # Fewer participants than k cannot span the heads' space: the smallest singular value is 0.
    smallest = values[-1] if len(heads) >= heads.shape[1] else 0.0
    return float(smallest), float(values[0])

"""Theorem 1: how much closer one round with n participants brings the representation.

Throughout, `start` is n0, the participants of the first stage, and `a` = η·E0·σmin²/2 ≤ 1/4.
"""

import math

from srpfl.errors import ConfigError


def contraction_parameter(eta: float, *, initial_distance: float, sigma_min: float) -> float:
    """a = η·E0·σmin²/2, where E0 = 1 − dist²(B⁰, B*).

    >>> contraction_parameter(0.125, initial_distance=0.6, sigma_min=1.0)
    0.04
    """
    return eta * (1 - initial_distance**2) * sigma_min**2 / 2


def contract(distance: float, n: int, *, start: int, a: float) -> float:
    """The distance after one round with n participants: d⁺ = d·√(1−a) + a/√((n/n0)(1−a)).

    >>> round(contract(1.0, 400, start=4, a=0.25), 4)
    0.8949
    """
    check_contraction(start, a)
    return distance * math.sqrt(1 - a) + a / math.sqrt(n / start * (1 - a))


def limit(n: int, *, start: int, a: float) -> float:
    """The distance that rounds with n participants tend to, and never pass.

    It is a / (√((n/n0)(1−a))·(1−√(1−a))), written here with a = (1−q)(1+q), q = √(1−a), so that
    a small a does not cancel.

    >>> round(limit(400, start=4, a=0.25), 4)
    0.2155
    """
    check_contraction(start, a)
    q = math.sqrt(1 - a)
    return (1 + q) / (q * math.sqrt(n / start))


def target_accuracy(clients: int, *, start: int, a: float, c_hat: float) -> float:
    """ε = ĉ times the limit at n = N, with 1 < ĉ < √2: only all N clients together can reach it.

    >>> round(target_accuracy(400, start=4, a=0.25, c_hat=1.4), 4)
    0.3017
    """
    if not 1 < c_hat < math.sqrt(2):
        raise ConfigError(f"c_hat must lie strictly between 1 and √2, not {c_hat}")
    return c_hat * limit(clients, start=start, a=a)


def rounds_to(level: float, n: int, *, start: int, a: float, distance: float = 1.0) -> int:
    """The rounds with n participants that bring `distance` to `level` or below, exactly.

    The contraction is linear: t rounds take d − limit to (1−a)^(t/2)·(d − limit). So the smallest
    t with the distance at or below `level` needs no loop, however small a is.

    >>> rounds_to(0.3, 400, start=4, a=0.25)
    16
    """
    if distance <= level:
        return 0
    floor = limit(n, start=start, a=a)
    if level <= floor:
        raise ConfigError(
            f"with n = {n} the distance tends to {floor:.4g} and never reaches {level:.4g}; "
            "raise n or the level"
        )
    left = (level - floor) / (distance - floor)
    rounds = math.ceil(math.log(left) / (math.log1p(-a) / 2))
    # The logarithms may round across an integer.
    if _decay(rounds, a) > left:
        return rounds + 1
    return rounds - 1 if _decay(rounds - 1, a) <= left else rounds


def distance_after(rounds: int, n: int, *, start: int, a: float, distance: float = 1.0) -> float:
    """The distance after so many rounds with n participants.

    >>> round(distance_after(1, 400, start=4, a=0.25), 4)
    0.8949
    """
    floor = limit(n, start=start, a=a)
    return floor + (distance - floor) * _decay(rounds, a) if rounds else distance


def _decay(rounds: int, a: float) -> float:
    return math.exp(rounds * math.log1p(-a) / 2)


def samples_needed(
    *,
    clients: int,
    start: int,
    dim: int,
    rank: int,
    noise: float,
    kappa: float,
    initial_distance: float,
    c0: float = 1.0,
) -> int:
    """Theorem 1's batch size m ≥ c0·(1+σ²)²·k³·κ⁴/E0² · max(ln N, d/n0), with κ = σmax/σmin.

    The constant c0 is unknown, so only the growth of the answer means something, not its size.
    The theorem states (1+σ²); its proof needs the square, because it asks for
    √m ≥ c·k^{3/2}·(1+σ²)·..., and that is what this computes.

    >>> samples_needed(clients=128, start=4, dim=20, rank=2, noise=1.0, kappa=1.0,
    ...                initial_distance=0.5)
    285
    """
    if not 0 <= initial_distance < 1:
        raise ConfigError(f"initial_distance must be in [0, 1), not {initial_distance}")
    e0 = 1 - initial_distance**2
    spread = max(math.log(clients), dim / start)
    return math.ceil(c0 * (1 + noise**2) ** 2 * rank**3 * kappa**4 / e0**2 * spread)


def check_contraction(start: int, a: float) -> None:
    """Refuse an n0 or an a that Theorem 1 does not speak of."""
    if start < 1:
        raise ConfigError(f"start must be at least 1, not {start}")
    if not 0 < a <= 0.25:
        raise ConfigError(f"a must be above 0 and at most 1/4, not {a}")

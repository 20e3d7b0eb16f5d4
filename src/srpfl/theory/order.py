"""How long a round waits for the first n of N answers."""

import math

from srpfl.errors import ConfigError

# Above this the asymptotic series below is exact to the last bit of a float; under it we add up.
_SERIES_FROM = 64


def expected_wait(n: int, clients: int, *, rate: float = 1.0) -> float:
    """E[T_(n)]: the expected time until n of N clients have answered.

    The clients' times are independent exponentials with the given rate λ, so that
    E[T_(n)] = (H_N − H_{N−n}) / λ. The cost does not grow with N.

    >>> expected_wait(1, 4), expected_wait(4, 4)
    (0.25, 2.0833333333333335)
    >>> round(expected_wait(2**19, 2**20), 6)       # half of a million clients: about ln 2
    0.693147
    """
    if not 0 <= n <= clients:
        raise ConfigError(f"n must be between 0 and clients = {clients}, not {n}")
    if not (rate > 0 and math.isfinite(rate)):
        raise ConfigError(f"rate must be a positive number, not {rate}")
    return _harmonic_difference(clients - n, clients) / rate


def _harmonic_difference(low: int, high: int) -> float:
    """H_high − H_low, without the cancellation of subtracting two harmonic numbers."""
    few = math.fsum(1 / j for j in range(low + 1, min(high, _SERIES_FROM) + 1))
    if high <= _SERIES_FROM:
        return few
    low = max(low, _SERIES_FROM)
    # H_n = γ + ln x + tail(x) with x = n + 1/2.
    return few + math.log1p((high - low) / (low + 0.5)) + _tail(high + 0.5) - _tail(low + 0.5)


def _tail(x: float) -> float:
    y = 1 / (x * x)
    return y * (1 / 24 - y * (7 / 960 - y * 31 / 8064))

"""What privacy costs, against the closed form for Gaussian mechanisms (Balle and Wang, 2018)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

import srpfl
import tiny
from srpfl.privacy import epsilon, noise_for, spent

pytest.importorskip("dp_accounting", reason="srpfl[privacy] is not installed")


def closed_form(noise: float, rounds: int, at: float) -> float:
    """δ at ε, of k Gaussian mechanisms with noise z."""
    mu = math.sqrt(rounds) / noise
    return float(norm.cdf(mu / 2 - at / mu) - math.exp(at) * norm.cdf(-mu / 2 - at / mu))


@pytest.mark.parametrize("noise", [0.8, 2.0, 10.0])
@pytest.mark.parametrize("rounds", [1, 7, 150])
def test_the_accountant_agrees_with_the_closed_form(noise: float, rounds: int) -> None:
    at = epsilon(noise, rounds, delta=1e-5)
    assert closed_form(noise, rounds, at) == pytest.approx(1e-5, rel=1e-4)


def added_up(noise: float, rounds: int, at: float, points: int = 4001) -> float:
    """δ at ε by numbers alone: what one round may show with and without a client, on a grid, and
    the sums of so many rounds' losses by Fourier transforms. No formula for Gaussians' sums."""
    shown = np.linspace(-9 * noise, 1 + 9 * noise, points)  # a sum that is 0 without, 1 with it
    with_it, without = (np.exp(-(((shown - mean) / noise) ** 2) / 2) for mean in (1, 0))
    loss = np.log(with_it / without)
    size = rounds * (points - 1) + 1
    chances = np.fft.irfft(np.fft.rfft(with_it / with_it.sum(), 2 * size) ** rounds, 2 * size)[
        :size
    ]
    losses = rounds * loss[0] + (loss[1] - loss[0]) * np.arange(size)
    return float((chances * -np.expm1(np.minimum(at - losses, 0))).sum())


@pytest.mark.parametrize(("noise", "rounds"), [(1.0, 1), (2.0, 7), (10.0, 150), (3.3, 30)])
def test_the_accountant_agrees_with_losses_added_up_round_by_round(
    noise: float, rounds: int
) -> None:
    at = epsilon(noise, rounds, delta=1e-5)
    assert added_up(noise, rounds, at) == pytest.approx(1e-5, rel=1e-3)
    assert added_up(noise, rounds, 0.9 * at) > 1.2e-5  # it is not blind


@pytest.mark.parametrize("wanted", [1.0, 4.0, 8.0])
def test_noise_is_made_for_an_epsilon(wanted: float) -> None:
    assert epsilon(noise_for(wanted, 40), 40) == pytest.approx(wanted, rel=1e-6)


def test_the_librarys_numerical_accountant_composes_rounds_to_the_same() -> None:
    from dp_accounting import GaussianDpEvent
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant()
    accountant.compose(GaussianDpEvent(6.0), 20)
    assert epsilon(6.0, 20) == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


def test_a_run_says_what_it_spent() -> None:
    algorithm = srpfl.FedRep(head_epochs=1, body_epochs=1, average="private:1.0,2.0")
    run = tiny.simulate(algorithm=algorithm, participation=srpfl.FirstN(n=2), rounds=3)
    found = spent(run)
    assert (found.rounds, found.most) == (3, 3)
    assert found.epsilon == epsilon(2.0, 3)


def test_noise_under_masks_costs_as_much_as_noise_at_the_server() -> None:
    central, masked = (
        spent(
            tiny.simulate(
                algorithm=srpfl.FedRep(head_epochs=1, body_epochs=1, average=average),
                participation=srpfl.FirstN(n=4),
                rounds=2,
            )
        )
        for average in ("private:1.0,2.0", "secure:1.0,2.0")
    )
    assert masked == central


def test_a_run_without_noise_promises_nothing() -> None:
    with pytest.raises(srpfl.errors.ConfigError, match="promises nothing"):
        spent(tiny.simulate(rounds=1))

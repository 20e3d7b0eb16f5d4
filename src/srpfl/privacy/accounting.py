"""How much of its privacy a client has spent: ε at a δ, by Google's accountant.

Two runs are neighbours when one client is in one of them and adds nothing in the other. Every
round in which a client's answer counts is one Gaussian mechanism. Who counts is who was fast, not a
random sample that nobody knows, so nothing is taken off for sampling.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scipy.optimize import brentq

from srpfl.algorithms.averages import averages
from srpfl.algorithms.private import Private
from srpfl.algorithms.summed import SecurePrivate
from srpfl.errors import ConfigError
from srpfl.runs.files import EVENTS, read_lines
from srpfl.runs.room import Room, largest

if TYPE_CHECKING:
    from srpfl.runs.results import Results

DELTA = 1e-5


@dataclass(frozen=True)
class Spent:
    """What a run has cost its clients."""

    epsilon: float  # of a client that was in every sum: what can be promised beforehand
    heard: float  # of the client that counted most often, where nobody chose by the answers
    delta: float
    rounds: int  # sums that were revealed: those of rounds, and of rounds played again
    most: int  # how often that client counted


def epsilon(noise: float, rounds: int, delta: float = DELTA) -> float:
    """ε of a client whose answers counted in so many rounds, each with noise z on the sum.

    >>> round(epsilon(noise=4.0, rounds=30), 2)
    6.33
    """
    _check(delta)
    if rounds == 0:
        return 0.0
    if noise == 0:
        return math.inf
    # Gaussians compose into one: k rounds with z are one with z / √k.
    loss = _gaussian(noise / math.sqrt(rounds))
    return _crossing(lambda value: float(loss.get_delta_for_epsilon(value)) - delta)


def noise_for(epsilon: float, rounds: int, delta: float = DELTA) -> float:
    """The noise z with which so many rounds cost at most ε.

    >>> round(noise_for(epsilon=8.0, rounds=30), 2)
    3.29
    """
    _check(delta)
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ConfigError(f"epsilon must be a positive number, not {epsilon}")
    # The larger μ = √k/z, the more is spent.
    most = _crossing(lambda mu: delta - float(_gaussian(1 / mu).get_delta_for_epsilon(epsilon)))
    return math.sqrt(rounds) / most


def _crossing(excess: Callable[[float], float]) -> float:
    """Where a falling function is zero; 0 if it begins below."""
    low, high = 1e-9, 1.0
    if excess(low) <= 0:
        return 0.0
    while excess(high) > 0:
        low, high = high, 2 * high
    return float(brentq(excess, low, high, xtol=1e-12))


def spent(run: Results, delta: float = DELTA) -> Spent:
    """What a run has cost its clients so far."""
    noise = _noise(run.config)
    counted = Counter(client for record in run.rounds for client in record.participants)
    again = max(0, _revealed(run.folder) - len(run.rounds))  # sums that nothing came of
    most = max(counted.values(), default=0) + again
    rounds = len(run.rounds) + again
    return Spent(epsilon(noise, rounds, delta), epsilon(noise, most, delta), delta, rounds, most)


def _revealed(folder: Path | None) -> int:
    """How often a server under masks has asked for what reveals a sum, as it noted beforehand."""
    if folder is None or not (folder / EVENTS).exists():
        return 0
    there = read_lines(folder / EVENTS, Room(largest()))
    return sum(b'"what": "revealed"' in line for line in there)


def _noise(config: Mapping[str, Any]) -> float:
    """z, as the run's config has it."""
    told = config["algorithm"].get("average", "mean")
    found = Private(noise=told["noise"]) if "noise" in told else averages(told)
    if not isinstance(found, Private | SecurePrivate):
        raise ConfigError(
            "this run has no noise, so it promises nothing: play one with "
            "average='private:CLIP,NOISE'"
        )
    return found.noise


def _check(delta: float) -> None:
    if not 0 < delta < 1:
        raise ConfigError(f"delta must be between 0 and 1, not {delta}")


def _gaussian(noise: float) -> Any:
    """The privacy loss of one Gaussian mechanism."""
    try:
        from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
    except ImportError:
        raise ConfigError(
            "counting privacy needs the library dp-accounting: pip install 'srpfl[privacy]'"
        ) from None
    return GaussianPrivacyLoss(noise)

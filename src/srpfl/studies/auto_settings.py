"""Linear problems with speeds, to play policies on: from a file, from a list, or at random."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from srpfl.clock import (
    Clock,
    DynamicExponential,
    Equal,
    FixedExponential,
    IIDExponential,
    Pareto,
    TwoGroups,
    Work,
)
from srpfl.core.randomness import stream
from srpfl.errors import ConfigError, unknown
from srpfl.linear import Problem
from srpfl.linear.problem import Array, Clients

COMMUNICATIONS = (0.0, 0.1, 1.0, 10.0, 100.0)
CLOCKS: dict[str, Callable[..., Clock]] = {
    "fixed": FixedExponential,
    "iid": IIDExponential,
    "dynamic": DynamicExponential,
    "pareto": Pareto,
    "two-groups": TwoGroups,
    "equal": Equal,
}
HEADS = ("even", "skewed", "by-speed")
APART = 2.0  # how far heads lean to their direction, where they do


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is played: a linear problem, a step, speeds, and the costs of a round.

    ``heads`` are "even" (all directions alike), "skewed" (most clients need the same direction),
    or "by-speed" (the slower half leans to another direction than the faster).

    >>> Setting(clients=16).name
    'N=16 n0=4 d=20 k=2 m=20 sigma=1 eta=0.1 fixed even'
    """

    clients: int = 64  # N
    start: int = 4  # n0
    dim: int = 20  # d
    rank: int = 2  # k
    samples: int = 20  # m
    noise: float = 1.0  # σ
    eta: float = 0.1  # η
    clock: str = "fixed"
    heads: str = "even"
    communications: tuple[float, ...] = COMMUNICATIONS  # C

    def __post_init__(self) -> None:
        if str(self.clock) not in CLOCKS:
            raise unknown("clock", str(self.clock), CLOCKS)
        if self.heads not in HEADS:
            raise unknown("kind of heads", str(self.heads), HEADS)
        for name in ("clients", "start", "dim", "rank", "samples"):
            if type(getattr(self, name)) is not int:
                raise ConfigError(f"{name} must be a whole number, not {getattr(self, name)!r}")
        if not 1 <= self.start <= self.clients:
            raise ConfigError(f"start must be between 1 and clients, not {self.start}")
        for name, value in (("noise", self.noise), ("eta", self.eta)):
            if not (_real(value) and value > 0):
                raise ConfigError(f"{name} must be a positive number, not {value!r}")
        costs = self.communications
        if not (costs and all(_real(cost) and cost >= 0 for cost in costs)):
            raise ConfigError(f"communications must be numbers from 0 on, not {costs!r}")
        self.problem(0)  # it has more to say of sizes

    @property
    def name(self) -> str:
        return (
            f"N={self.clients} n0={self.start} d={self.dim} k={self.rank} m={self.samples} "
            f"sigma={self.noise:g} eta={self.eta:g} {self.clock} {self.heads}"
        )

    @property
    def rounds(self) -> int:
        """So many that FedRep stands at its floor for the last quarter of them."""
        return int(min(1000, max(200, 20 / self.eta)))

    def clock_at(self, communication: float) -> Clock:
        return CLOCKS[self.clock](communication=communication)

    def problem(self, seed: int) -> SettingProblem:
        return SettingProblem(
            clients=self.clients,
            dim=self.dim,
            rank=self.rank,
            samples=self.samples,
            noise=self.noise,
            seed=seed,
            lean=self.heads,
            speeds=self.clock,
        )

    def times(self, seed: int, round: int) -> Array:
        """How long each client takes."""
        everyone = np.arange(self.clients)
        work = Work(np.ones_like(everyone), np.full_like(everyone, self.samples), 0, 0)
        return CLOCKS[self.clock]().times(seed, round, everyone, self.clients, work)


@dataclass(frozen=True, kw_only=True)
class SettingProblem(Problem):
    """A problem whose heads may lean, and which draws a round's batches once for all who are
    played on it round by round."""

    lean: str = "even"
    speeds: str = "fixed"
    _drawn: dict[tuple[str, int], tuple[Array, Array]] = field(default_factory=dict, repr=False)

    @cached_property
    def heads(self) -> Array:
        if self.lean == "even":
            return super().heads
        draw = stream(self.seed, "linear heads").standard_normal((self.clients, self.rank))
        if self.lean == "skewed":
            draw[:, 0] *= 1 + APART
        else:
            everyone = np.arange(self.clients)
            work = Work(np.ones_like(everyone), np.ones_like(everyone), 0, 0)
            times = CLOCKS[self.speeds]().times(self.seed, 0, everyone, self.clients, work)
            slow = np.argsort(np.argsort(times, kind="stable")) >= self.clients / 2
            draw[~slow, 0] += APART
            draw[slow, -1] += APART
        heads: Array = draw / np.linalg.norm(draw, axis=1, keepdims=True)
        heads *= math.sqrt(self.rank)
        return heads

    def batch(self, purpose: str, round: int, clients: Clients) -> tuple[Array, Array]:
        if (purpose, round) not in self._drawn:
            self._drawn.clear()
            self._drawn[purpose, round] = super().batch(purpose, round, np.arange(self.clients))
        x, y = self._drawn[purpose, round]
        return x[clients], y[clients]


def listed() -> list[Setting]:
    """One thing changed at a time: 57 settings, 855 cells with five C and three targets."""
    base = Setting()
    changes: list[dict[str, Any]] = [
        {},
        *({"eta": eta} for eta in (0.02, 0.05, 0.2, 0.4)),
        *({"rank": rank} for rank in (1, 5)),
        *({"dim": dim} for dim in (10, 50)),
        *({"samples": samples} for samples in (5, 100)),
        *({"noise": noise} for noise in (0.3, 3.0)),
        *({"start": start} for start in (1, 16)),
        {"clients": 256},
        {"eta": 0.4, "samples": 5},
    ]
    found = [
        replace(base, clock=clock, **change)
        for change in changes
        for clock in ("fixed", "iid", "dynamic")
    ]
    return found + [
        replace(base, clock=clock, clients=clients)
        for clients in (64, 256)
        for clock in ("pareto", "two-groups", "equal")
    ]


def drawn(count: int, seed: int) -> list[Setting]:
    """Settings at random, from wide ranges; the same seed, the same settings.

    >>> drawn(2, 7) == drawn(3, 7)[:2]
    True
    """
    return [_one(stream(seed, "auto setting", place)) for place in range(count)]


def _one(rng: np.random.Generator) -> Setting:
    def spread(low: float, high: float) -> float:
        """Between the two, small ones as likely as large ones."""
        return float(f"{math.exp(rng.uniform(math.log(low), math.log(high))):.2g}")

    clients, rank = round(spread(32, 2048)), int(rng.integers(1, 7))
    return Setting(
        clients=clients,
        start=max(1, round(spread(1, clients / 8))),
        dim=int(rng.integers(rank + 4, 61)),
        rank=rank,
        samples=max(rank + 2, round(spread(5, 100))),
        noise=spread(0.2, 4),
        eta=spread(0.02, 0.5),
        clock=str(rng.choice(list(CLOCKS))),
        heads=str(rng.choice(HEADS, p=[0.5, 0.25, 0.25])),
        communications=(0.0, spread(0.03, 1), spread(1, 300)),
    )


def read_settings(file: Path) -> list[Setting]:
    """The settings of a TOML or JSON file: a list ``setting`` of tables with a setting's names."""
    try:
        text = file.read_text()
        found = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read settings from {file}: {error}") from error
    tables = found.get("setting") if isinstance(found, dict) else None
    if not isinstance(tables, list) or not tables or not all(isinstance(t, dict) for t in tables):
        raise ConfigError(f"{file} must hold a list named 'setting' of tables, one per setting")
    return [setting_of(table) for table in tables]


def write_settings(file: Path, settings: Sequence[Setting]) -> None:
    """As JSON, in a form that `read_settings` reads."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = ",\n".join(json.dumps(asdict(setting)) for setting in settings)
    file.write_text(f'{{"setting": [\n{rows}\n]}}\n')


def setting_of(table: dict[str, Any]) -> Setting:
    """A setting from its names and values."""
    known = [each.name for each in fields(Setting)]
    for name in table:
        if name not in known:
            raise unknown("name in a setting", name, known)
    costs = table.get("communications", COMMUNICATIONS)
    if not isinstance(costs, (list, tuple)):
        raise ConfigError(f"communications must be a list of numbers, not {costs!r}")
    return Setting(**{**table, "communications": tuple(costs)})


def _real(value: object) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(float(value))  # type: ignore[arg-type]

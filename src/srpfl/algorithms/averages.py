"""What a server may take for the average of answers when some of them may be anything at all.

Each replaces the mean in any algorithm: ``FedAvg(average="krum:2")``, ``--set average=median``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from srpfl.algorithms.private import Private
from srpfl.algorithms.summed import Secure, SecurePrivate
from srpfl.core.fields import check_fields
from srpfl.core.means import weighted_mean
from srpfl.core.split import Params
from srpfl.errors import ConfigError, unknown

Average = Callable[[Params, Sequence[Params], Sequence[float]], Params]  # of sent, answers, weights


def averages(name: str | Average) -> Average:
    """An average by its name, with its numbers behind a colon.

    >>> averages("krum:2")
    Krum(faulty=2.0, keep=1)
    """
    if not isinstance(name, str):
        return name
    kind, colon, numbers = name.partition(":")
    if kind not in AVERAGES:
        raise unknown("average", kind, AVERAGES)
    try:
        return AVERAGES[kind](*map(float, numbers.split(","))) if colon else AVERAGES[kind]()
    except (TypeError, ValueError):
        raise ConfigError(
            f"cannot read the average '{name}': write mean, median, trimmed:0.1, krum:2, "
            "multi-krum:2, geometric-median, clipped:1.0, private:1.0,0.8 (clip, noise), secure or "
            "secure:1.0,0.8"
        ) from None


@dataclass(frozen=True)
class Mean:
    """The weighted mean. One bad answer can take it anywhere."""

    def __call__(self, sent: Params, parts: Sequence[Params], weights: Sequence[float]) -> Params:
        return weighted_mean(*_once(parts, weights), like=sent)


@dataclass(frozen=True)
class Median:
    """The median of each number, without weights (Yin et al., 2018): bears fewer than half bad
    answers."""

    def __call__(self, sent: Params, parts: Sequence[Params], weights: Sequence[float]) -> Params:
        return _by_name(parts, _median)


@dataclass(frozen=True)
class TrimmedMean:
    """The mean of each number without its largest and smallest (Yin et al., 2018): bears that
    share of bad answers."""

    share: float = 0.1  # left out at each end

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.share < 0.5:
            raise ConfigError(f"the share to trim is from 0 to below a half, not {self.share:g}")

    def __call__(self, sent: Params, parts: Sequence[Params], weights: Sequence[float]) -> Params:
        cut = min(math.ceil(self.share * len(parts) - 1e-9), (len(parts) - 1) // 2)
        return _by_name(parts, lambda rows: _inner(rows, cut))


@dataclass(frozen=True)
class Krum:
    """The answer that is closest to its n − f − 2 nearest others, or the mean of the few that are
    (Blanchard et al., 2017): bears f bad answers of more than 2f + 2."""

    faulty: float = 1  # f
    keep: int | None = 1  # None: multi-Krum's n − f

    def __post_init__(self) -> None:
        check_fields(self)
        if self.faulty < 0 or self.faulty % 1:
            raise ConfigError(f"krum takes a whole number of bad answers, not {self.faulty:g}")

    def __call__(self, sent: Params, parts: Sequence[Params], weights: Sequence[float]) -> Params:
        rows, count = _rows(parts), len(parts)
        near = max(1, count - int(self.faulty) - 2)
        apart = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square()
        scores = apart.sort(dim=1).values[:, 1 : near + 1].sum(1)  # the nearest is itself
        keep = min(count, self.keep or max(1, count - int(self.faulty)))
        best = scores.nan_to_num(math.inf).argsort(stable=True)[:keep].tolist()
        return weighted_mean([parts[i] for i in best], [weights[i] for i in best])


@dataclass(frozen=True)
class GeometricMedian:
    """The point of least weighted distance to the answers, by Weiszfeld's steps (Pillutla et al.,
    2022): bears less than half of the weight in bad answers."""

    steps: float = 100
    nearest: float = 1e-9  # a distance below which an answer counts no more

    def __call__(self, sent: Params, parts: Sequence[Params], weights: Sequence[float]) -> Params:
        parts, weights = _finite(parts, weights)
        rows = _rows(parts)
        own = torch.tensor(weights, dtype=torch.float64, device=rows.device)
        at = _median(rows)
        pull = own
        for _ in range(int(self.steps)):
            pull = own / (rows - at).norm(dim=1).clamp(min=self.nearest)
            at = (pull / pull.sum()) @ rows
        return weighted_mean(parts, pull.tolist())


@dataclass(frozen=True)
class Clipped:
    """The mean of updates of at most that norm (Sun et al., 2019): an answer can move the model by
    its share of the norm and no further."""

    norm: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        if not (math.isfinite(self.norm) and self.norm > 0):
            raise ConfigError(f"the norm of an update must be a positive number, not {self.norm:g}")

    def __call__(self, sent: Params, parts: Sequence[Params], weights: Sequence[float]) -> Params:
        parts, weights = _finite(parts, weights)
        lengths = (_rows(parts) - _rows([sent])).norm(dim=1)
        scales = (self.norm / lengths.clamp(min=1e-12)).clamp(max=1.0).tolist()
        cut = [
            {n: _between(sent[n], value, scale) for n, value in part.items()}
            for part, scale in zip(parts, scales, strict=True)
        ]
        return weighted_mean(cut, weights)


def _once(parts: Sequence[Params], weights: Sequence[float]) -> tuple[list[Params], list[float]]:
    """Each part once: several answers may be the same mean of theirs."""
    found: dict[int, Params] = {}
    total: dict[int, float] = {}
    for part, weight in zip(parts, weights, strict=True):
        found[id(part)] = part
        total[id(part)] = total.get(id(part), 0.0) + weight
    return list(found.values()), list(total.values())


def _finite(
    parts: Sequence[Params], weights: Sequence[float]
) -> tuple[Sequence[Params], Sequence[float]]:
    """Without answers that are no numbers, unless there are no others."""
    fine = [i for i, row in enumerate(_rows(parts)) if bool(row.isfinite().all())]
    return ([parts[i] for i in fine], [weights[i] for i in fine]) if fine else (parts, weights)


def _inner(rows: Tensor, cut: int) -> Tensor:
    """The mean without so many at each end; what is no number is at the upper one."""
    return rows.sort(dim=0).values[cut : len(rows) - cut].mean(0)


def _median(rows: Tensor) -> Tensor:
    return _inner(rows, (len(rows) - 1) // 2)


def _between(old: Tensor, new: Tensor, scale: float) -> Tensor:
    return old + scale * (new - old) if scale < 1 and new.is_floating_point() else new


def _by_name(parts: Sequence[Params], middle: Callable[[Tensor], Tensor]) -> Params:
    """One number from many, for each number of the model."""
    found: Params = {}
    for name, like in parts[0].items():
        value = middle(torch.stack([part[name] for part in parts]).double())
        found[name] = (value if like.is_floating_point() else value.round()).to(like.dtype)
    return found


def _rows(parts: Sequence[Params]) -> Tensor:
    """A row of numbers for each answer; what was sent may have its names in another order."""
    names = sorted(name for name, value in parts[0].items() if value.is_floating_point())
    return torch.stack([torch.cat([part[n].double().flatten() for n in names]) for part in parts])


AVERAGES: dict[str, Callable[..., Average]] = {
    "mean": Mean,
    "median": Median,
    "trimmed": TrimmedMean,
    "krum": Krum,
    "multi-krum": lambda faulty=1: Krum(faulty, keep=None),
    "geometric-median": GeometricMedian,
    "clipped": Clipped,
    "private": Private,
    "secure": lambda *numbers: SecurePrivate(*numbers) if numbers else Secure(),
}

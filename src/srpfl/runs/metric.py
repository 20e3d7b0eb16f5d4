"""What a run is judged by: how its values are read, which way is better, what is worth a race."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from srpfl.errors import ConfigError

SHARES = ("accuracy", "label accuracy")  # metrics that are shares of a whole
TITLES = {"rmse": "RMSE", "mse": "MSE", "mae": "MAE", "r2": "R²"}
LOOSENED = 0.05  # by how much of itself the best value becomes a target


def is_share(metric: str) -> bool:
    """Whether the metric is shown in per cent."""
    return metric in SHARES


def shown(metric: str, value: float) -> str:
    """A value of the metric in words.

    >>> shown("accuracy", 0.8731), shown("rmse", 10.4271), shown("perplexity", 1234.5)
    ('87.3 %', '10.43', '1234')
    """
    return f"{100 * value:.1f} %" if is_share(metric) else f"{value:.4g}"


@dataclass(frozen=True)
class Metric:
    """A metric and which way is better.

    >>> Metric("rmse", higher_is_better=False).best([11.2, 10.4, 10.9])
    10.4
    """

    name: str = "accuracy"
    higher_is_better: bool = True

    @property
    def is_share(self) -> bool:
        return is_share(self.name)

    @property
    def title(self) -> str:
        """The name as people write it."""
        return TITLES.get(self.name, self.name)

    @property
    def axis(self) -> str:
        """The name beside an axis; shares are drawn in per cent."""
        return f"{self.title} (%)" if self.is_share else self.title

    @property
    def scale(self) -> float:
        """What values are multiplied by where they are drawn."""
        return 100.0 if self.is_share else 1.0

    def shown(self, value: float) -> str:
        return shown(self.name, value)

    def told(self, value: float) -> str:
        """A value with the name, as in a sentence.

        >>> Metric().told(0.8731), Metric("rmse", False).told(10.4)
        ('87.3 % accuracy', 'RMSE 10.4')
        """
        words = self.shown(value)
        return f"{words} {self.title}" if self.is_share else f"{self.title} {words}"

    def reaches(self, value: float, target: float) -> bool:
        """Whether a value is at the target or better."""
        return value >= target if self.higher_is_better else value <= target

    def best(self, values: Iterable[float]) -> float:
        return max(values) if self.higher_is_better else min(values)

    def worst(self, values: Iterable[float]) -> float:
        return min(values) if self.higher_is_better else max(values)

    def loosened(self, value: float) -> float:
        """A target 5 % short of a value, rounded to what is printed of it, away from the value.

        >>> Metric().loosened(0.9142), Metric("rmse", False).loosened(9.8765)
        (0.868, 10.38)
        >>> Metric("r2").loosened(-2.0)
        -2.1
        """
        shrinks = self.higher_is_better == (value >= 0)
        target = (1 - LOOSENED if shrinks else 1 + LOOSENED) * value
        if not target:
            return 0.0
        # Shares to a tenth of a per cent, others to four digits.
        digits = 3 if self.is_share else 3 - math.floor(math.log10(abs(target)))
        cut = math.floor if self.higher_is_better else math.ceil
        # 1.05 times 10 is 10.500000000000002, and that is not worth another digit.
        steps = target * 10.0**digits
        whole = round(steps)
        near = math.isclose(steps, whole, rel_tol=1e-12)
        return round((whole if near else cut(steps)) / 10.0**digits, max(0, digits))

    def pooled(self, values: Sequence[float], weights: Sequence[float]) -> float | None:
        """The value of several clients taken together; None where nothing was tested.

        It is the weighted mean of their values, of their squares (RMSE) or of their logarithms
        (perplexity). For a metric that cannot be had from clients' values, as R², the mean.

        >>> Metric("rmse", False).pooled([1.0, 7.0], [1, 1])
        5.0
        """
        total = math.fsum(weights)
        if not total:
            return None
        there, back = _MEANS.get(self.name, (float, float))
        pairs = zip(values, weights, strict=True)
        return back(math.fsum(there(v) * weight for v, weight in pairs if weight) / total)

    @property
    def pool(self) -> str:
        """How clients are taken together, in a word: the mean of their values, or of what."""
        return _POOLS.get(self.name, "mean")

    def check_target(self, target: float) -> None:
        """Refuse a target that no run could have."""
        if self.is_share and not 0 < target <= 1:
            raise ConfigError(f"the target is a fraction above 0 and at most 1, not {target}")
        if not math.isfinite(target):
            raise ConfigError(f"the target must be a number, not {target}")


# What is averaged in the stead of a value, and the way back.
_MEANS: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "rmse": (lambda value: value * value, math.sqrt),
    "perplexity": (math.log, math.exp),
}
_POOLS = {"rmse": "square", "perplexity": "logarithm"}

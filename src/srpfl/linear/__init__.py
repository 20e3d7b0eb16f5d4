"""SRPFL in the linear representation case (Algorithm 2): what the theory speaks of, run."""

from srpfl.linear.algorithm import (
    best_heads,
    distance,
    head_spread,
    method_of_moments,
    orthonormal,
    updates,
)
from srpfl.linear.problem import Problem
from srpfl.linear.run import LinearRun, run
from srpfl.linear.study import Pair, compare

__all__ = [
    "LinearRun",
    "Pair",
    "Problem",
    "best_heads",
    "compare",
    "distance",
    "head_spread",
    "method_of_moments",
    "orthonormal",
    "run",
    "updates",
]

"""What the analysis promises: waiting times, contraction, stages and speed-up (section 4).

Everything here is arithmetic on a handful of numbers. Nothing is trained, and nothing heavier
than the standard library is imported until a plot or a policy is asked for.
"""

from srpfl.theory.contraction import (
    contract,
    contraction_parameter,
    distance_after,
    limit,
    rounds_to,
    samples_needed,
    target_accuracy,
)
from srpfl.theory.order import expected_wait
from srpfl.theory.speedup import (
    Assumptions,
    Cost,
    Gain,
    Stage,
    compare,
    doubled,
    doubling_point,
    lemma_rounds,
    optimal_schedule,
    time_ratio_bound,
)

__all__ = [
    "Assumptions",
    "Cost",
    "Gain",
    "Stage",
    "compare",
    "contract",
    "contraction_parameter",
    "distance_after",
    "doubled",
    "doubling_point",
    "expected_wait",
    "lemma_rounds",
    "limit",
    "optimal_schedule",
    "rounds_to",
    "samples_needed",
    "target_accuracy",
    "time_ratio_bound",
]

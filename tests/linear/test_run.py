"""Runs of Algorithm 2: what the round loop does to them, and the claims of the analysis."""

import math
from statistics import fmean

import numpy as np
import pytest

from srpfl import linear, theory
from srpfl.clock import DynamicExponential, FixedExponential, IIDExponential, Work
from srpfl.errors import ConfigError, DivergedError
from srpfl.linear import Problem
from srpfl.linear.study import mean_times
from srpfl.participation import Deadline, Doubling, Everyone, FirstN

SMALL = Problem(clients=16, dim=6, rank=2, samples=12, noise=0.5, seed=1)


def test_a_run_is_the_round_repeated_with_the_first_n() -> None:
    """Three rounds transcribed: order the clock's times, take four, average, QR."""
    answer = linear.run(
        SMALL, participation=FirstN(n=4), clock=FixedExponential(), eta=0.1, rounds=3
    )
    ones = np.ones(16, dtype=np.int64)
    times = FixedExponential().times(1, 0, np.arange(16), 16, Work(ones, ones, 0, 0))
    fastest = np.argsort(times)[:4]
    b = linear.method_of_moments(SMALL)
    for round in range(3):
        updated, _ = linear.updates(SMALL, round, fastest, b, 0.1)
        b = linear.orthonormal(updated.mean(0))
        assert answer.distance[round] == pytest.approx(
            linear.distance(SMALL.representation, b), rel=1e-9
        )
    assert answer.computing == pytest.approx(times[fastest].max() * np.arange(1, 4))
    assert (answer.sigma_min, answer.sigma_max) == pytest.approx(
        linear.head_spread(SMALL.heads[fastest])
    )


def test_communication_is_charged_once_a_round_and_changes_no_training() -> None:
    free, dear = (
        linear.run(
            SMALL,
            participation=Everyone(),
            clock=IIDExponential(communication=c),
            eta=0.1,
            rounds=5,
        )
        for c in (0.0, 10.0)
    )
    assert np.array_equal(free.distance, dear.distance)
    assert dear.time(10.0) == pytest.approx(free.time(0.0) + 10 * np.arange(1, 6))


def test_the_time_to_a_target_is_that_of_the_first_round_at_or_below_it() -> None:
    answer = linear.LinearRun(
        initial_distance=0.9,
        distance=np.array([0.5, 0.2, 0.3, 0.1]),
        computing=np.array([1.0, 2.5, 3.0, 4.0]),
        participants=(1, 1, 1, 1),
        sigma_min=1.0,
        sigma_max=1.0,
    )
    assert answer.time_to(0.2) == 2.5
    assert answer.time_to(0.2, communication=10) == 22.5
    assert answer.time_to(0.95) == 0.0
    assert answer.time_to(0.05) is None
    assert answer.floor == pytest.approx(0.275)


@pytest.mark.parametrize("clock", [IIDExponential(), FixedExponential(), DynamicExponential()])
def test_policies_of_the_core_decide_who_takes_part(clock: IIDExponential) -> None:
    policy = Doubling(sample=10, start=3, every=2)  # N = 10 of M = 16, and 10/3 is no power of two
    answer = linear.run(SMALL, participation=policy, clock=clock, eta=0.1, rounds=7)
    assert answer.participants == (3, 3, 6, 6, 10, 10, 10)


def test_a_deadline_policy_works_here_too() -> None:
    policy = Deadline(seconds=0.5)
    answer = linear.run(SMALL, participation=policy, clock=IIDExponential(), eta=0.1, rounds=6)
    assert all(1 <= n <= 16 for n in answer.participants)
    assert len(set(answer.participants)) > 1


def test_the_schedule_of_the_analysis_runs_directly() -> None:
    setting = theory.Assumptions(clients=16, start=1, a=0.25)
    answer = linear.run(
        SMALL,
        participation=theory.optimal_schedule(setting),
        clock=IIDExponential(),
        eta=0.1,
        rounds=theory.compare(setting).srpfl.rounds,
    )
    expected = [s.n for s in theory.compare(setting).stages for _ in range(s.rounds)]
    assert list(answer.participants) == expected


def test_without_noise_everyone_converges_no_slower_than_the_contraction() -> None:
    """σ = 0: the second term of the contraction is gone, so dist falls by √(1−a) a round."""
    case = Problem(clients=60, dim=20, rank=2, samples=40, noise=0.0)
    answer = linear.run(case, participation=Everyone(), clock=IIDExponential(), eta=0.1, rounds=150)
    a = theory.contraction_parameter(
        0.1, initial_distance=answer.initial_distance, sigma_min=answer.sigma_min
    )
    assert 0 < a <= 0.25
    assert 1 / (8 * answer.sigma_max**2) >= 0.1  # the step size that the theorem allows
    distances = np.array([answer.initial_distance, *answer.distance])
    assert (distances[1:] <= math.sqrt(1 - a) * distances[:-1]).all()
    assert distances[-1] < 1e-5


def test_edge_sizes_run() -> None:
    for case, start in [
        (Problem(clients=1, dim=3, rank=2, samples=5), 1),
        (Problem(clients=8, dim=3, rank=3, samples=5), 8),  # k = d: nothing to find
        (Problem(clients=8, dim=1, rank=1, samples=1), 1),  # m = k: heads fit every batch
    ]:
        pair = linear.compare(case, start=start, every=1, clock=IIDExponential(), eta=0.1, rounds=5)
        assert np.isfinite(pair.srpfl.distance).all()
        if case.rank == case.dim:
            assert pair.srpfl.distance.max() < 1e-12


def test_an_absurd_step_is_refused_and_not_averaged() -> None:
    with pytest.raises(DivergedError, match="not finite"):
        linear.run(SMALL, participation=Everyone(), clock=IIDExponential(), eta=1e308, rounds=5)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"eta": 0.0}, "eta"),
        ({"eta": math.inf}, "eta"),
        ({"rounds": 0}, "rounds"),
        ({"start": 17}, "17"),
        ({"start": 0}, "at least one"),
        ({"clients": 17}, "17"),
        ({"every": 0}, "stage"),
    ],
)
def test_a_bad_run_is_refused_in_one_sentence(change: dict[str, float], named: str) -> None:
    options = {"start": 4, "every": 2, "eta": 0.1, "rounds": 2} | change
    with pytest.raises(ConfigError, match=named) as refusal:
        linear.compare(SMALL, clock=IIDExponential(), **options)  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)


@pytest.mark.slow
def test_ten_seeds_show_equal_floors_a_gain_without_communication_and_a_loss_with_much() -> None:
    # 160 rounds say what 400 do: n = N after 100, and ten rounds later noise holds the distance.
    pairs = [
        linear.compare(
            Problem(clients=128, dim=20, rank=2, samples=20, noise=1.0, seed=seed),
            start=4,
            every=20,
            clock=IIDExponential(),
            eta=0.1,
            rounds=160,
        )
        for seed in range(10)
    ]
    floor = fmean(pair.fedrep.floor for pair in pairs)
    assert fmean(pair.srpfl.floor for pair in pairs) == pytest.approx(floor, rel=0.1)
    (free_fedrep, free_srpfl), (dear_fedrep, dear_srpfl) = (
        mean_times(pairs, c) for c in (0.0, 10.0)
    )
    assert free_fedrep is not None
    assert free_srpfl is not None
    assert free_fedrep > 3 * free_srpfl
    assert dear_fedrep is not None
    assert dear_srpfl is not None
    assert dear_srpfl > dear_fedrep

"""The theory's numbers, against exact sums, Monte Carlo and the contraction iterated by hand."""

import itertools
import math
import subprocess
import sys
import timeit
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srpfl import theory
from srpfl.errors import ConfigError
from srpfl.theory import Assumptions

PAPER = {"start": 4, "a": 0.25, "c_hat": 1.4}
SIZES = [2**e for e in range(6, 18)]


@settings(deadline=None)
@given(st.integers(1, 300), st.data())
def test_the_expected_wait_is_the_exact_sum(clients: int, data: st.DataObject) -> None:
    n = data.draw(st.integers(0, clients))
    exact = sum((Fraction(1, j) for j in range(clients - n + 1, clients + 1)), Fraction(0))
    assert theory.expected_wait(n, clients) == pytest.approx(float(exact), rel=4e-16)


def test_the_expected_wait_is_exact_and_immediate_for_a_million_clients() -> None:
    clients = 2**20
    terms = [1 / j for j in range(1, clients + 1)]
    for n in (1, 1000, clients // 2, clients - 1, clients):
        assert theory.expected_wait(n, clients) == pytest.approx(
            math.fsum(terms[clients - n :]), rel=4e-16
        )
    # Microseconds: a millisecond per call is what no loop over a million terms can do.
    assert timeit.timeit(lambda: theory.expected_wait(clients, clients), number=100) < 0.1


@pytest.mark.parametrize("n", [1, 7, 16, 20])
def test_the_expected_wait_agrees_with_monte_carlo(n: int) -> None:
    clients, rate, draws = 20, 2.5, 40_000
    times = np.random.default_rng(0).exponential(1 / rate, (draws, clients))
    waits = np.sort(times, axis=1)[:, n - 1]
    # Four standard errors of the mean: a right formula fails one time in 16,000.
    tolerance = 4 * waits.std() / math.sqrt(draws)
    assert abs(waits.mean() - theory.expected_wait(n, clients, rate=rate)) < tolerance


def test_the_limit_is_the_fixed_point_of_the_contraction() -> None:
    for n, start, a in [(4, 4, 0.25), (100, 7, 0.1), (10**6, 1, 1e-6)]:
        limit = theory.limit(n, start=start, a=a)
        assert theory.contract(limit, n, start=start, a=a) == pytest.approx(limit, rel=1e-12)


def test_the_limits_of_the_first_three_stages_are_above_the_start_for_every_a() -> None:
    for a in np.linspace(1e-6, 0.25, 50):
        assert theory.limit(4 * 4, start=4, a=float(a)) > 1 - 1e-12


def iterate(setting: Assumptions) -> tuple[list[tuple[int, int, float]], int]:
    """Section 7 of the specification, word by word: the reference for `compare`."""
    q, start = math.sqrt(1 - setting.a), setting.start

    @cache
    def harmonic(n: int) -> float:
        return math.fsum(1 / j for j in range(1, n + 1))

    def wait(n: int) -> float:
        return (harmonic(setting.clients) - harmonic(setting.clients - n)) / setting.rate

    def limit(n: int) -> float:
        return setting.a / (math.sqrt(n / start * (1 - setting.a)) * (1 - q))

    def step(distance: float, n: int) -> float:
        return distance * q + setting.a / math.sqrt(n / start * (1 - setting.a))

    epsilon = setting.c_hat * limit(setting.clients)
    distance, n, rounds, stages = 1.0, start, 0, []
    while distance > epsilon or n < setting.clients:
        following = min(setting.clients, 2 * n)
        leave = math.inf
        if n < setting.clients and distance > epsilon:
            gain = (wait(n) + setting.c / setting.rate) * (1 - math.sqrt(n / following))
            leave = limit(n) * (1 + gain / (wait(following) - wait(n)))
        if n < setting.clients and distance <= leave:
            stages.append((n, rounds, distance))
            n, rounds = following, 0
        else:
            distance, rounds = step(distance, n), rounds + 1
    stages.append((n, rounds, distance))

    alone, distance = 0, 1.0
    while distance > epsilon:
        alone, distance = alone + 1, step(distance, setting.clients)
    return stages, alone


@settings(deadline=None)  # shared machines stall
@given(
    start=st.integers(1, 12),
    ratio=st.floats(10, 200),
    a=st.floats(0.01, 0.25),
    c=st.sampled_from([0.0, 0.3, 1.0, 10.0, 1000.0]),
    c_hat=st.floats(1.001, 1.414),
    rate=st.sampled_from([0.5, 1.0, 3.0]),
)
def test_rounds_and_distances_are_those_of_iterating_the_contraction(
    start: int, ratio: float, a: float, c: float, c_hat: float, rate: float
) -> None:
    setting = Assumptions(
        clients=math.ceil(start * ratio), start=start, a=a, c=c, c_hat=c_hat, rate=rate
    )
    answer = theory.compare(setting)
    stages, alone = iterate(setting)
    assert [(s.n, s.rounds) for s in answer.stages] == [(n, rounds) for n, rounds, _ in stages]
    assert [s.distance for s in answer.stages] == pytest.approx([d for *_, d in stages], rel=1e-9)
    assert answer.fedrep.rounds == alone


def test_the_times_are_rounds_times_what_a_round_takes() -> None:
    setting = Assumptions(clients=150, c=2.0, rate=0.5, **PAPER)
    answer = theory.compare(setting)
    assert [s.n for s in answer.stages] == [4, 8, 16, 32, 64, 128, 150]
    assert answer.srpfl.rounds == sum(s.rounds for s in answer.stages)
    assert answer.srpfl.time == pytest.approx(
        sum(s.rounds * (theory.expected_wait(s.n, 150, rate=0.5) + 4.0) for s in answer.stages)
    )
    assert answer.fedrep.time == pytest.approx(
        answer.fedrep.rounds * (theory.expected_wait(150, 150, rate=0.5) + 4.0)
    )
    assert answer.speedup == answer.fedrep.time / answer.srpfl.time


def test_a_run_ends_at_epsilon_even_before_all_clients_are_needed() -> None:
    # N just above 64·n0: the limit at n = 256 is already below ε.
    answer = theory.compare(Assumptions(clients=257, **PAPER))
    assert answer.stages[-1].rounds == 0
    assert answer.stages[-1].distance <= answer.epsilon


def test_the_rate_only_scales_the_clock() -> None:
    slow, fast = (
        theory.compare(Assumptions(clients=300, c=1.0, rate=r, **PAPER)) for r in (0.1, 10)
    )
    assert [s.rounds for s in slow.stages] == [s.rounds for s in fast.stages]
    assert slow.speedup == pytest.approx(fast.speedup)


def test_the_speedup_grows_with_the_clients_and_passes_ten() -> None:
    speedups = [theory.compare(Assumptions(clients=n, c=0.0, **PAPER)).speedup for n in SIZES]
    assert all(low < high for low, high in itertools.pairwise(speedups))
    assert speedups[-1] > 10


def test_communication_eats_the_speedup() -> None:
    dear = [theory.compare(Assumptions(clients=n, c=10.0, **PAPER)).speedup for n in SIZES]
    assert max(dear) < 2
    assert min(dear) < 1  # it may lose a little: doubling looks one stage ahead, not to the end
    for n in SIZES:
        assert theory.compare(Assumptions(clients=n, c=1e6, **PAPER)).speedup == pytest.approx(
            1, abs=1e-3
        )


def test_the_speedup_shrinks_as_the_target_needs_all_clients() -> None:
    for clients in (2**10, 2**17):
        speedups = [
            theory.compare(Assumptions(clients=clients, start=4, a=0.25, c_hat=c_hat)).speedup
            for c_hat in (1.4, 1.2, 1.1, 1.01, 1.001, 1 + 1e-6, 1 + 1e-12)
        ]
        assert all(high > low for high, low in itertools.pairwise(speedups))
        assert speedups[-1] < 1.5


def test_the_optimal_schedule_waits_as_the_analysis_says_and_then_for_everyone() -> None:
    setting = Assumptions(clients=150, **PAPER)
    stages = theory.compare(setting).stages
    expected = [stage.n for stage in stages for _ in range(stage.rounds)]
    policy = theory.optimal_schedule(setting)
    policy.begin(population=600)
    calls = [policy.call({}, round, population=600) for round in range(len(expected) + 5)]
    assert [call.wait for call in calls] == [*expected, *[150] * 5]
    assert {call.ask for call in calls} == {150}


def test_the_optimal_schedule_ends_with_everyone_even_if_the_analysis_did_not_need_them() -> None:
    policy = theory.optimal_schedule(Assumptions(clients=257, **PAPER))
    assert policy.call({}, 10**6, population=257).wait == 257


@pytest.mark.parametrize("clients", [2**7, 2**12, 2**17])
@pytest.mark.parametrize("c", [0.0, 1.0])
def test_the_lemma_bounds_the_exact_rounds(clients: int, c: float) -> None:
    setting = Assumptions(clients=clients, c=c, **PAPER)
    exact = [stage.rounds for stage in theory.compare(setting).stages]
    lemma = theory.lemma_rounds(setting)
    assert lemma[0] is None
    for rounds, bound in zip(exact[1:], lemma[1:], strict=True):
        assert bound is not None
        assert rounds <= math.ceil(bound)


def test_the_lemma_is_what_the_paper_prints() -> None:
    wait = [theory.expected_wait(n, 256) for n in (16, 32, 64)]
    printed = 2 * math.log(math.sqrt(2) * (wait[2] - wait[1]) / (wait[1] - wait[0]))
    bound = theory.lemma_rounds(Assumptions(clients=256, **PAPER))[3]
    assert bound == pytest.approx(printed / math.log(1 / (1 - 0.25)))


def test_theorem_2_is_asymptotic() -> None:
    # Its lower bound for FedRep is log₂N·(log₂N + 2·log₂(1/(ĉ−1)))/log₂(1/(1−a)).
    setting = Assumptions(clients=2**14, c=0.0, **PAPER)
    closeness = -math.log2(0.4)
    claimed = 14 * (14 + 2 * closeness) / -math.log2(0.75)
    assert theory.compare(setting).fedrep.time < claimed
    assert theory.compare(setting).bound == pytest.approx(
        (6 + 4 * closeness) / (14 + 2 * closeness)
    )


def test_theorem_2_bounds_the_ratio_wherever_we_looked() -> None:
    for c, c_hat, a, start in itertools.product(
        (0.0, 1.0, 10.0, 100.0), (1.0001, 1.1, 1.2, 1.4, 1.414), (0.01, 0.25), (1, 4, 16)
    ):
        for clients in (2**10, 2**14, 2**20):
            setting = Assumptions(clients=clients, start=start, a=a, c=c, c_hat=c_hat)
            answer = theory.compare(setting)
            assert 1 / answer.speedup < answer.bound


def test_the_sample_size_has_the_square_that_the_proof_needs() -> None:
    case = {"clients": 100, "start": 10, "dim": 20, "rank": 2, "kappa": 2.0}
    quiet = theory.samples_needed(noise=0.0, initial_distance=0.0, c0=1e3, **case)
    noisy = theory.samples_needed(noise=1.0, initial_distance=0.0, c0=1e3, **case)
    assert noisy / quiet == pytest.approx(4, rel=1e-6)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"start": 200}, "start"),
        ({"start": 0}, "start"),
        ({"clients": 0}, "clients must"),
        ({"a": 0.0}, "a must"),
        ({"a": 0.26}, "a must"),
        ({"a": math.nan}, "a must"),
        ({"c_hat": 1.0}, "c_hat"),
        ({"c_hat": math.sqrt(2)}, "c_hat"),
        ({"c": -1.0}, "c must"),
        ({"c": math.inf}, "c must"),
        ({"rate": 0.0}, "rate"),
        ({"start": 128}, "raise clients"),
        ({"start": 20}, "raise clients"),
    ],
)
def test_a_bad_setting_is_refused_in_one_sentence(change: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as refusal:
        Assumptions(**{"clients": 128, "start": 4, "a": 0.25, "c": 0.0, "c_hat": 1.4} | change)  # type: ignore[arg-type]
    assert str(refusal.value).count("\n") == 0


def test_the_advice_about_too_few_clients_is_right() -> None:
    with pytest.raises(ConfigError, match=r"raise clients to (\d+)") as refusal:
        Assumptions(clients=20, **PAPER)
    enough = int(str(refusal.value).split("raise clients to ")[1].split()[0])
    Assumptions(clients=enough, **PAPER)
    with pytest.raises(ConfigError):
        Assumptions(clients=enough - 1, **PAPER)


def test_the_theory_itself_imports_nothing_heavy() -> None:
    code = "import sys, srpfl.theory; sys.exit(bool({'matplotlib', 'scipy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

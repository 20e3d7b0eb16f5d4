"""Auto's estimates against updates whose truth is known, and its choices against the best ones."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

import srpfl
from srpfl import linear
from srpfl.clock import Equal, FixedExponential
from srpfl.errors import ConfigError
from srpfl.options.choices import build_participation
from srpfl.options.config import Config
from srpfl.participation import Answer, Auto, Call, Everyone, Outcome
from srpfl.participation._arrivals import Arrivals
from srpfl.participation._signal import SKETCH, Glance, Signal, look, sketch
from srpfl.participation.auto import choices


def outcome(
    updates: np.ndarray[Any, Any],
    *,
    times: list[float],
    asked: int,
    communication: float = 0.0,
    sent: np.ndarray[Any, Any] | None = None,
) -> Outcome:
    """A round in which the answers moved by these updates."""
    origin = torch.from_numpy(np.zeros(updates.shape[1]) if sent is None else sent)
    answers = [
        Answer(i, times[i], {"w": origin + torch.from_numpy(update)}, 0.0, 1)
        for i, update in enumerate(updates)
    ]
    call = Call(ask=asked, wait=len(answers))
    return Outcome(0, call, range(asked), answers, times[-1], communication, {"w": origin})


# What a round says


def test_a_round_is_summed_up_by_its_mean_and_its_variance() -> None:
    updates = np.array([[1.0, 0.0], [3.0, 4.0], [2.0, 2.0]])
    seen = look(outcome(updates, times=[1.0, 2.0, 3.0], asked=5, sent=np.array([7.0, 7.0])))
    assert seen.answers == 3
    assert seen.update == pytest.approx([2.0, 2.0])
    assert seen.position == pytest.approx([7.0, 7.0])
    assert seen.spread == pytest.approx((5 + 5 + 0) / 2)  # over n − 1


def test_one_answer_has_no_spread_and_whole_numbers_are_left_out() -> None:
    sent = {"w": torch.zeros(2), "steps": torch.tensor(3)}
    answer = Answer(0, 1.0, {"w": torch.ones(2), "steps": torch.tensor(4)}, 0.0, 1)
    seen = look(Outcome(0, Call(ask=2, wait=1), [0, 1], [answer], 1.0, 0.0, sent))
    assert seen.spread is None
    assert seen.update.tolist() == [1.0, 1.0]


def test_a_sketch_keeps_inner_products() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.standard_normal((2, 50_000))
    short = [sketch([torch.from_numpy(v)]) for v in (one, one + two)]
    assert len(short[0]) == SKETCH
    error = short[0] @ short[1] - one @ (one + two)
    # Dealt out at random, a product of lengths L1 and L2 is off by about L1·L2·√(2/256).
    lengths = np.linalg.norm(one) * np.linalg.norm(one + two)
    assert abs(error) < 4 * lengths * math.sqrt(2 / SKETCH)
    assert sketch([torch.from_numpy(one + two)]) == pytest.approx(
        short[0] + sketch([torch.from_numpy(two)])
    )


# What rounds say together


def stream_of_updates(
    rounds: int, *, answers: int, pull: float, noise: float, distance: float, dim: int = 40
) -> tuple[Signal, np.ndarray[Any, Any]]:
    """u = −α (x − x*) + ε with E‖ε‖² = noise/n, x* = 0; returns the estimate and the position."""
    rng = np.random.default_rng(1)
    x = np.full(dim, distance / math.sqrt(dim))
    signal = Signal()
    for _ in range(rounds):
        update = -pull * x + rng.standard_normal(dim) * math.sqrt(noise / answers / dim)
        spread = noise * rng.chisquare(dim * (answers - 1)) / (dim * (answers - 1))
        signal = signal.after(Glance(answers, update, x, spread), memory=4.0)
        x = x + update
    return signal, x


def test_the_variance_of_the_answers_is_found() -> None:
    signal, _ = stream_of_updates(40, answers=4, pull=0.1, noise=2.0, distance=10.0)
    assert signal.variance == pytest.approx(2.0, rel=0.1)  # 40·3·40 squares: 2 % each way


def test_without_noise_the_expected_update_is_known_exactly() -> None:
    signal, x = stream_of_updates(20, answers=4, pull=0.1, noise=0.0, distance=10.0)
    assert signal.squared(x) == pytest.approx(0.1**2 * float(x @ x))


def test_the_pull_is_learnt() -> None:
    fast, _ = stream_of_updates(100, answers=8, pull=0.3, noise=1e-4, distance=10.0)
    slow, _ = stream_of_updates(100, answers=8, pull=0.05, noise=1e-4, distance=10.0)
    assert fast.pull == pytest.approx(0.3, rel=0.2)
    assert slow.pull == pytest.approx(0.05, rel=0.2)


@pytest.mark.parametrize("pull", [0.02, 0.1, 0.4])
def test_the_pull_is_learnt_though_noise_holds_the_model(pull: float) -> None:
    """After a few times 1/α rounds it is not far off, neither on the way nor at the floor."""
    for rounds in (round(4 / pull), round(12 / pull)):
        signal, _ = stream_of_updates(rounds, answers=4, pull=pull, noise=1.0, distance=5.0)
        assert 0.5 * pull < signal.pull < 2 * pull


def test_one_wild_answer_does_not_decide_how_noisy_answers_are() -> None:
    rng, signal = np.random.default_rng(0), Signal()
    for round in range(12):
        updates = rng.standard_normal((8, 20))
        updates[0] *= 100 if round == 10 else 1
        signal = signal.after(look(outcome(updates, times=[1.0] * 8, asked=8)), memory=4.0)
    assert signal.variance < 200  # 20 without it; the mean of the last three rounds is 8,000


def test_near_the_floor_distance_is_neither_lost_nor_invented() -> None:
    """At the floor of n answers ‖E u‖² is α/(2 − α) of noise/n; single rounds cannot tell."""
    ratios = []
    for rounds in range(150, 250, 10):
        signal, x = stream_of_updates(rounds, answers=4, pull=0.1, noise=1.0, distance=3.0)
        ratios.append(signal.squared(x) / (0.1**2 * float(x @ x)))
    assert 0.6 < np.mean(ratios) < 1.8


def test_differences_that_come_back_are_told_from_noise() -> None:
    rng = np.random.default_rng(0)
    own = rng.standard_normal((6, 30))  # what the six participants always want
    lasting, passing = Signal(), Signal()
    for _ in range(60):
        same = own + 0.1 * rng.standard_normal((6, 30))
        other = rng.standard_normal((6, 30))
        for updates in (same, other):
            seen = look(outcome(updates, times=[1.0] * 6, asked=6))
            if updates is same:
                lasting = lasting.after(seen, memory=4.0)
            else:
                passing = passing.after(seen, memory=4.0)
    assert lasting.persistence > 0.7
    assert passing.persistence < 0.1


# How long a round waits


def test_waits_are_means_where_answers_were_waited_for() -> None:
    seen = Arrivals(asked=8, ranks=(1, 2, 4, 8)).after([1.0, 2.0, 4.0, 6.0]).after([1.0, 4.0])
    assert seen.wait_for(2) == pytest.approx(3.0)
    # The second round did not wait for four: their gap to the second answer is the first round's.
    assert seen.wait_for(4) == pytest.approx(3.0 + 4.0)


def test_clients_of_equal_speed_are_expected_to_come_together() -> None:
    assert Arrivals(asked=64, ranks=(1, 4, 64)).after([2.0] * 4).wait_for(64) == 2.0


def test_the_missing_are_expected_to_be_at_least_exponentially_slow() -> None:
    rng = np.random.default_rng(3)
    times = np.sort(rng.exponential(size=128))
    seen = Arrivals(asked=128, ranks=(1, 16, 32, 64, 128)).after(times[:64].tolist())
    assert math.log(2) + 0.9 * math.log(64) < seen.wait_for(128) < 10 * math.log(64)


# What is chosen


def test_the_choices_grow_by_a_step_and_then_what_is_missing_shrinks_by_it() -> None:
    assert choices(2, 32, step=2) == [2, 4, 8, 16, 24, 28, 30, 31, 32]
    assert choices(10, 100, step=2) == [10, 20, 40, 50, 75, 88, 94, 97, 98, 100]
    assert choices(4, 64) == [4, 6, 8, 11, 15, 22, 30, 32, 41, 48, 52, 56, 58, 60, 61, 62, 63, 64]
    assert choices(5, 5) == [5]
    assert choices(1, 2) == [1, 2]


def after_one_round(communication: float, *, signal: float, noise: float = 1.0) -> int:
    """n for round two, after a round with 4 of 128 exponential clients."""
    rng = np.random.default_rng(0)
    times = np.sort(rng.exponential(size=128))[:4].tolist()
    updates = math.sqrt(noise / 50) * rng.standard_normal((4, 50)) + math.sqrt(signal / 50)
    policy = Auto(start=4)
    round = outcome(updates, times=times, asked=128, communication=communication)
    return int(policy.learn(policy.begin(128), round)["wait"])


def test_far_away_and_with_free_communication_few_are_enough() -> None:
    assert after_one_round(0.0, signal=100.0) == 4


@pytest.mark.parametrize(("fewest", "later"), [(None, 6), (16, 16), (40, 32)])
def test_a_large_start_is_for_the_first_round_and_others_wait_for_the_fewest(
    fewest: int | None, later: int
) -> None:
    policy, rng = Auto(start=32, fewest=fewest), np.random.default_rng(0)
    memory, waits = policy.begin(64), []
    for _ in range(5):
        waits.append(memory["wait"])
        updates = 3.0 + 0.1 * rng.standard_normal((memory["wait"], 10))
        times = np.arange(1.0, 1 + memory["wait"]).tolist()
        memory = policy.learn(memory, outcome(updates, times=times, asked=64))
    assert waits == [32, *[later] * 4]


def test_when_communication_dwarfs_the_waiting_everyone_is_waited_for_at_once() -> None:
    assert after_one_round(1000.0, signal=100.0) == 128
    assert after_one_round(1000.0, signal=0.0) == 128


def test_the_dearer_communication_the_more_answers() -> None:
    chosen = [after_one_round(c, signal=1.0) for c in (0.0, 0.1, 1.0, 10.0, 100.0)]
    assert chosen == sorted(chosen)
    assert chosen[0] < chosen[-1]


def test_it_stays_while_there_is_progress_and_leaves_once_noise_holds_it() -> None:
    """x* = 0, α = 0.1, fixed speeds, C = 0. With n answers the squared error cannot fall below
    α·noise / (n (2 − α)); where waiting grows like n the best time to double is at twice that."""
    rng = np.random.default_rng(2)
    dim, noise, pull, asked = 40, 1.0, 0.1, 256
    times = (np.arange(1, asked + 1) / asked).tolist()
    policy = Auto(start=4)
    memory, x = policy.begin(asked), np.full(dim, 1.0)
    left_at = {}
    for _ in range(400):
        n = memory["wait"]
        update = -pull * x + rng.standard_normal(dim) * math.sqrt(noise / n / dim)
        spread = noise * rng.chisquare(dim * (n - 1)) / (dim * (n - 1))
        seen, call = Glance(n, update, x, spread), Call(ask=asked, wait=n)
        memory = policy.after(memory, seen, times[:n], call, times[n - 1], 0.0)
        x = x + update
        floor = pull * noise / (n * (2 - pull)) / pull**2
        if memory["wait"] > n and n not in left_at:
            left_at[n] = float(x @ x) / floor
    assert list(left_at)[:7] == [4, 6, 8, 11, 15, 22, 30]
    # A squared error of 40 coordinates is known to about a fifth, and what is not known counts.
    assert all(0.7 < left_at[n] < 3 for n in (4, 8, 15, 30)), left_at
    assert memory["wait"] >= asked / 2


def test_it_goes_back_when_it_turns_out_to_have_gone_too_far() -> None:
    """The last client takes a thousand times as long as anyone could guess from the others."""
    policy, rng = Auto(start=4), np.random.default_rng(0)
    memory = {**policy.begin(8), "wait": 8}
    updates = 3.0 + 0.1 * rng.standard_normal((8, 10))
    seen = outcome(updates, times=[1.0] * 7 + [1000.0], asked=8)
    after = policy.learn(memory, seen)
    assert after["wait"] == 7
    assert after["account"]["why"] == "fewer answers get as far in less time"


def patient_waits(lasting: float) -> tuple[list[int], str]:
    """n of 400 rounds in which few answers seem to do, and the last reason for it."""
    rng, times = np.random.default_rng(0), np.arange(1.0, 17.0)
    own, policy = lasting * rng.standard_normal((16, 30)), Auto(start=2)
    memory, waits = policy.begin(16), []
    for _ in range(400):
        n = memory["wait"]
        waits.append(n)
        updates = 3.0 + own[:n] + 0.1 * rng.standard_normal((n, 30))
        memory = policy.learn(memory, outcome(updates, times=times[:n].tolist(), asked=16))
    return waits, memory["account"]["why"]


def test_everyone_is_heard_in_the_end_where_clients_differ_for_good() -> None:
    waits, why = patient_waits(lasting=0.5)
    assert waits[:15] == [2] * 15
    assert waits[-1] == 16
    assert "differ from the others" in why


def test_where_clients_do_not_differ_for_good_nobody_is_waited_for_without_need() -> None:
    waits, _ = patient_waits(lasting=0.0)
    assert set(waits) == {2}


def test_a_wait_that_is_a_guess_has_a_deadline() -> None:
    """51 answers came within 1; the other 13 may follow soon or take for ever. A longer wait may
    take twice as long as guessed, if that is a tenth of the time so far beyond what is known."""
    policy, rng = Auto(start=4), np.random.default_rng(0)
    memory, times = policy.begin(64), np.linspace(0.5, 1.0, 51).tolist()
    for round in range(1, 40):
        updates = 1e-3 + rng.standard_normal((51, 10))
        memory = policy.learn(memory, outcome(updates, times=times, asked=64))
        call = policy.call(memory, round, 64)
        if call.wait > 51:
            break
        assert call.deadline is None
    known, guessed = times[47], memory["account"]["wait_chosen"]  # 48 is a choice of n, 51 is not
    assert guessed > known
    assert call.deadline == pytest.approx(2 * guessed, rel=0.01)
    assert call.deadline - known <= round / policy.patience < call.deadline


def test_who_does_not_answer_is_tried_again_less_and_less_often() -> None:
    """Sixteen clients are asked, and one of them is never heard."""
    policy, rng = Auto(start=2), np.random.default_rng(0)
    memory, tried, now = policy.begin(16), [], 0.0
    for round in range(400):
        call = policy.call(memory, round, 16)
        n = min(15, call.wait)
        seen = outcome(rng.standard_normal((n, 10)), times=[1.0] * n, asked=16)
        if call.wait == 16:
            assert call.deadline is not None
            assert call.deadline - 1.0 <= now / policy.patience
            tried.append(call.deadline)
            seen = replace(seen, duration=call.deadline)
        now += seen.duration
        memory = policy.learn(memory, replace(seen, call=call))
    assert tried == [2.0 * 2**n for n in range(len(tried))]
    assert 2 <= len(tried) <= 10


def test_a_single_answer_is_followed_by_two() -> None:
    policy = Auto(start=1)
    seen = outcome(np.ones((1, 3)), times=[1.0], asked=10)
    after = policy.learn(policy.begin(10), seen)
    assert after["wait"] == 2
    assert after["account"]["why"] == "one answer alone shows no spread"


def test_answers_that_all_agree_need_no_company() -> None:
    policy = Auto(start=2)
    seen = outcome(np.ones((2, 3)), times=[1.0, 3.0], asked=10)
    assert policy.learn(policy.begin(10), seen)["wait"] == 2


def test_memory_survives_json_and_decides_alike() -> None:
    policy, rng = Auto(start=3), np.random.default_rng(0)
    kept, stored = policy.begin(12), policy.begin(12)
    for _ in range(5):
        n = kept["wait"]
        times = np.sort(rng.exponential(size=12))[:n].tolist()
        seen = outcome(1 + rng.standard_normal((n, 20)), times=times, asked=12)
        kept = policy.learn(kept, seen)
        stored = json.loads(json.dumps(policy.learn(stored, seen), allow_nan=False))
        assert stored["wait"] == kept["wait"]
        assert stored["account"] == kept["account"]


def test_a_sample_by_stage_is_drawn_anew_even_if_n_stays() -> None:
    policy = Auto(start=2, sample=0.5, resample="stage")
    memory = policy.begin(10)
    draws = [policy.call(memory, round, 10).draw for round in (0, 9, 10, 35)]
    assert draws == [0, 0, 1, 3]


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(ConfigError, match="memory must be at least 1"):
        Auto(memory=0.5)
    with pytest.raises(ConfigError, match="fewest answers must be at least 1"):
        Auto(fewest=0)
    with pytest.raises(ConfigError, match="margin must be at least 0 and below 1"):
        Auto(margin=1.0)
    with pytest.raises(ConfigError, match="patience must be at least 1"):
        Auto(patience=math.nan)
    with pytest.raises(ConfigError, match="step must be at least"):
        Auto(step=1.0)
    with pytest.raises(ConfigError, match="margin must be a number, not 'a tenth'"):
        Auto(margin="a tenth")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="must be a whole number or None, not True"):
        Auto(start=True).begin(8)
    with pytest.raises(ConfigError, match="waits for 9 clients but only 8"):
        Auto(start=9).begin(8)


# In runs


def test_it_has_a_name_on_the_command_line() -> None:
    policy = build_participation(Config(participation="auto", start=3), "everyone")
    assert policy == Auto(start=3)
    assert policy.sees_communication


def test_with_equal_speeds_it_is_fedrep() -> None:
    problem = linear.Problem(clients=32, dim=10, rank=2, samples=10)
    auto = linear.run(problem, participation=Auto(start=2), clock=Equal(), eta=0.1, rounds=60)
    assert set(auto.participants) == {32}
    assert auto.time()[-1] == 60


def test_where_a_round_is_dear_the_first_one_hears_everyone_and_else_only_few() -> None:
    problem = linear.Problem(clients=128, dim=10, rank=2, samples=10)
    heard = [
        linear.run(
            problem,
            participation=Auto(start=4),
            clock=FixedExponential(communication=cost),
            eta=0.1,
            rounds=2,
        ).participants[0]
        for cost in (0.0, 1000.0)
    ]
    assert heard[0] < 8
    assert heard[1] == 128


def test_in_the_linear_case_it_beats_waiting_for_everyone_and_ends_where_that_ends() -> None:
    problem = linear.Problem(clients=64, dim=10, rank=2, samples=10)
    fedrep, auto = (
        linear.run(problem, participation=p, clock=FixedExponential(), eta=0.1, rounds=300)
        for p in (Everyone(), Auto(start=4))
    )
    target = 2 * fedrep.floor
    found, known = auto.time_to(target), fedrep.time_to(target)
    assert found is not None
    assert known is not None
    assert found < 0.5 * known
    assert auto.floor < 1.05 * fedrep.floor


@dataclass(frozen=True)
class SomeNever(Equal):
    """Clients from this number on take for ever."""

    first: int = 9

    def times(self, *given: Any) -> Any:
        return np.where(given[2] < self.first, 0.1 * (1 + given[2]), np.inf)


@pytest.mark.slow
@pytest.mark.parametrize("start", [1, 10])
def test_whoever_takes_for_ever_is_not_waited_for(start: int) -> None:
    run = srpfl.simulate(
        data=srpfl.data.load("digits", clients=12, seed=0),
        model=srpfl.models.MLP(64, (8,), classes=10),
        algorithm=srpfl.FedAvg(),
        participation=Auto(start=start),
        clock=SomeNever(),
        rounds=60,
        evaluate_every=0,
    )
    assert [record.wait for record in run.rounds[5:]].count(12) < 5
    decisions = [record.decision for record in run.rounds if record.decision]
    assert all(math.isfinite(decision["wait_all"]) for decision in decisions)
    assert not any("everyone answers" in decision["why"] for decision in decisions)


def test_it_says_when_everyone_answers_already() -> None:
    run = srpfl.simulate(
        data=srpfl.data.load("digits", clients=12, seed=0),
        model=srpfl.models.MLP(64, (8,), classes=10),
        algorithm=srpfl.FedAvg(),
        participation=Auto(start=2),
        clock=Equal(),
        rounds=3,
        evaluate_every=0,
    )
    reasons = [record.decision["why"] for record in run.rounds[1:] if record.decision]
    assert reasons == ["everyone answers, and waiting for fewer would not be faster"] * 2


@pytest.mark.gpu
def test_answers_may_be_on_a_device() -> None:
    waits = [
        [
            record.wait
            for record in srpfl.simulate(
                data=srpfl.data.load("digits", clients=10, partition=srpfl.data.Shards(3), seed=0),
                model=srpfl.models.MLP(64, (16, 8), classes=10),
                algorithm=srpfl.FedRep(head_epochs=1),
                participation=Auto(start=2),
                rounds=5,
                device=device,
            ).rounds
        ]
        for device in ("cpu", "cuda")
    ]
    assert waits[0] == waits[1]


@pytest.mark.parametrize(
    "algorithm", [srpfl.FedRep(head_epochs=1), srpfl.FedAvg(), srpfl.LGFedAvg()]
)
@pytest.mark.parametrize("sample", [1.0, 0.5])
def test_it_works_with_any_algorithm_and_with_samples_and_keeps_an_account(
    algorithm: Any, sample: float
) -> None:
    run = srpfl.simulate(
        data=srpfl.data.load("digits", clients=10, partition=srpfl.data.Shards(3), seed=0),
        model=srpfl.models.MLP(64, (16, 8), classes=10),
        algorithm=algorithm,
        participation=Auto(start=2, sample=sample),
        clock=FixedExponential(communication=100.0),
        rounds=3,
        evaluate_every=0,
    )
    assert run.rounds[0].wait == 2
    assert run.rounds[1].wait == round(10 * sample)  # C = 100: everyone who is asked
    account = run.rounds[0].decision
    assert account["chosen"] == run.rounds[1].wait
    assert account["communication"] == 100.0
    assert {"signal", "noise", "pull", "lasting", "wait_chosen", "wait_all", "why"} <= set(account)

"""Noise that hides a client: how much of it there is, and that nothing gets around it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import kstest

import srpfl
import tiny
from srpfl.algorithms.averages import averages
from srpfl.algorithms.base import with_secrets
from srpfl.algorithms.private import Private, entropy, normal
from srpfl.algorithms.summed import SecurePrivate
from srpfl.errors import ConfigError
from srpfl.options.methods import METHODS

SENT = {"w": torch.zeros(40, 50), "count": torch.tensor(3)}


def answers(count: int, length: float) -> list[dict[str, torch.Tensor]]:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(count, 40, 50))
    rows *= length / np.linalg.norm(rows, axis=(1, 2), keepdims=True)
    return [{"w": torch.from_numpy(row).float(), "count": torch.tensor(9)} for row in rows]


@pytest.mark.parametrize("kind", [Private, SecurePrivate])
@pytest.mark.parametrize("count", [4, 64])
def test_the_sum_has_the_noise_that_was_promised(kind: Any, count: int) -> None:
    parts = answers(count, 0.5)
    plain = kind(1.0, 0.0)(SENT, parts, [1.0] * count)
    noisy = kind(1.0, 3.0)(SENT, parts, [1.0] * count)
    seen = float((noisy["w"] - plain["w"]).double().std()) * count
    assert seen == pytest.approx(3.0, rel=0.08)  # five deviations of a deviation of 2,000 numbers


def test_one_client_moves_the_sum_by_at_most_the_clip() -> None:
    parts = answers(5, 1000.0)
    private = Private(clip=0.7, noise=0.0)
    mean = private(SENT, parts, [1.0] * 5)["w"]
    without = private(SENT, [*parts[:4], SENT], [1.0] * 5)["w"]
    assert float((mean - without).norm()) * 5 <= 0.7 * (1 + 1e-5)  # float32


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_no_number_counts_as_nothing(bad: float) -> None:
    parts = [*answers(3, 0.5), {"w": torch.full((40, 50), bad), "count": torch.tensor(1)}]
    assert bool(Private(1.0, 0.0)(SENT, parts, [1.0] * 4)["w"].isfinite().all())


def test_counts_do_not_leave() -> None:
    assert int(Private()(SENT, answers(3, 1.0), [1.0] * 3)["count"]) == 3


def test_each_round_has_noise_of_its_own_and_a_repeated_one_the_same() -> None:
    first, other = answers(3, 1.0), {**SENT, "w": SENT["w"] + 1}
    once, again = (Private()(SENT, first, [1.0] * 3)["w"] for _ in range(2))
    assert torch.equal(once, again)
    shifted = [{**part, "w": part["w"] + 1} for part in first]
    assert not torch.allclose(Private()(other, shifted, [1.0] * 3)["w"] - 1, once, atol=0.01)


def test_without_noise_and_clipping_it_is_the_plain_mean() -> None:
    plain, private = (
        tiny.simulate(rounds=2, algorithm=srpfl.FedAvg(average=average))
        for average in ("mean", "private:1e6,0")
    )
    for name, value in plain.state.shared.items():
        torch.testing.assert_close(private.state.shared[name], value, rtol=1e-6, atol=1e-7)


def test_a_stopped_private_run_resumes_exactly(tmp_path: Path) -> None:
    private = srpfl.FedRep(head_epochs=1, body_epochs=1, average="private:1.0,0.1")
    whole = tiny.simulate(rounds=4, algorithm=private)
    stopped = {"algorithm": private, "out": tmp_path / "run", "watchers": [StopAfter(2)]}
    with pytest.raises(KeyboardInterrupt):
        tiny.simulate(rounds=4, **stopped)
    resumed = tiny.simulate(rounds=4, algorithm=private, out=tmp_path / "run", resume=True)
    for name, value in whole.state.shared.items():
        assert torch.equal(resumed.state.shared[name], value)


class StopAfter(srpfl.Watcher):
    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def round(self, record: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


SAFE = {"fedavg", "fedrep", "fedadam", "fedprox", "ditto", "fedavgm", "feddyn", "ca2fl"}
UNSAFE = {"scaffold", "fednova", "ifca", "fedamp", "partial-training"}


@pytest.mark.parametrize("name", sorted(SAFE))
def test_methods_that_need_the_mean_alone_can_be_private(name: str) -> None:
    tiny.simulate(rounds=1, algorithm=METHODS[name].algorithm(average="private:1.0,1.0"))


@pytest.mark.parametrize("name", sorted(UNSAFE))
def test_methods_that_read_single_answers_are_stopped(name: str) -> None:
    with pytest.raises(ConfigError, match="does not hide a client"):
        tiny.simulate(rounds=1, algorithm=METHODS[name].algorithm(average="private:1.0,1.0"))


@dataclass(frozen=True, kw_only=True)
class Nosy(srpfl.FedAvg):
    """A user's own, which looks at one answer."""

    def update(self, sent: Any, server: Any, answers: Any, population: int) -> Any:
        return answers[0].shared, server


def test_a_users_own_algorithm_cannot_get_around_it() -> None:
    with pytest.raises(ConfigError, match="reads single answers"):
        tiny.simulate(rounds=1, algorithm=Nosy(average="private:1.0,1.0"))


def test_a_policy_sees_only_what_everyone_will_know() -> None:
    seen = []

    @dataclass(frozen=True, kw_only=True)
    class Looking(srpfl.Everyone):
        def learn(self, memory: Any, outcome: Any) -> Any:
            seen.append((outcome.sent, [answer.shared for answer in outcome.answers]))
            with pytest.raises(ConfigError, match="losses of single clients"):
                _ = outcome.answers[0].loss
            return memory

    private = srpfl.FedAvg(average="private:1.0,0.5")
    run = tiny.simulate(rounds=1, algorithm=private, participation=Looking())
    (sent, shown) = seen[0]
    for name, value in run.state.shared.items():
        mean = torch.stack([part[name] for part in shown]).double().mean(0)
        torch.testing.assert_close(mean, value.double(), rtol=1e-5, atol=1e-5)
    spread = Private(1.0, 0.5).spread(sent, len(shown))
    rows = torch.stack([torch.cat([v.flatten() for v in part.values()]) for part in shown])
    assert float(rows.double().var(0).sum()) == pytest.approx(spread, rel=1e-4)


def test_weights_by_samples_are_refused() -> None:
    with pytest.raises(ConfigError, match="weigh all answers alike"):
        Private()(SENT, answers(2, 1.0), [1.0, 2.0])


@pytest.mark.parametrize(
    "text",
    ["private:0,1", "private:1,-1", "private:1,2,3", "private:x", "secure:0,1", "secure:1,2,3"],
)
def test_bad_numbers_are_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ConfigError):
        averages(text)


def test_a_deployment_draws_noise_that_nobody_can_repeat() -> None:
    real = with_secrets(srpfl.FedAvg(average="private:1.0,1.0"))
    assert real.hides is not None
    seeded = Private(1.0, 1.0)(SENT, answers(3, 1.0), [1.0] * 3)["w"]
    assert not torch.allclose(real.hides(SENT, answers(3, 1.0), [1.0] * 3)["w"], seeded, atol=0.1)
    assert with_secrets(srpfl.FedAvg()) == srpfl.FedAvg()


def test_draws_depend_on_every_bit_of_what_they_are_made_of() -> None:
    """A generator of PyTorch's has 2^32 of them in all, which a server could try out."""
    seed = bytes(32)
    first = normal(seed, 4)
    for place in range(32):
        assert not torch.equal(normal(seed[:place] + b"\1" + seed[place + 1 :], 4), first)
    assert len({entropy(None, SENT, 0) for _ in range(3)}) == 3
    assert len(entropy(None, SENT, 0)) == 32


def test_draws_are_normal() -> None:
    assert kstest(normal(b"some", 100_000).numpy(), "norm").pvalue > 0.01


def test_auto_plays_under_masks_where_noise_bounds_what_it_sees() -> None:
    noisy = srpfl.FedRep(head_epochs=1, body_epochs=1, average="secure:1.0,0.5")
    run = tiny.simulate(rounds=3, algorithm=noisy, participation=srpfl.Auto(start=2, margin=0))
    assert len(run.rounds) == 3

"""Averages that bear answers that are anything at all."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srpfl
import tiny
from srpfl.algorithms.averages import AVERAGES, averages
from srpfl.core.split import Params
from srpfl.options.choices import build_algorithm
from srpfl.options.config import Config
from srpfl.options.methods import method
from srpfl.participation.base import Answer

rng = np.random.default_rng(1)
GOOD = [
    {"w": torch.from_numpy(rng.normal(size=(2, 3))), "b": torch.from_numpy(rng.normal(size=2))}
    for _ in range(11)
]
SENT = {name: torch.zeros_like(value) for name, value in GOOD[0].items()}


def averaged(name: str, parts: list[Params], sent: Params = SENT) -> Params:
    return averages(name)(sent, parts, [1.0] * len(parts))


def numbers(part: Params) -> np.ndarray:
    return torch.cat([value.flatten() for value in part.values()]).numpy()


def spoiled(count: int, value: float) -> list[Params]:
    bad = {name: torch.full_like(tensor, value) for name, tensor in SENT.items()}
    return [*GOOD[: len(GOOD) - count], *[bad] * count]


@pytest.mark.parametrize("value", [1e12, -1e12, math.inf, math.nan])
@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("median", 5),
        ("trimmed:0.2", 3),
        ("krum:4", 4),
        ("multi-krum:4", 4),
        ("geometric-median", 5),
    ],
)
def test_it_stays_among_the_good_ones_up_to_the_stated_share(
    name: str, share: int, value: float
) -> None:
    found = numbers(averaged(name, spoiled(share, value)))
    good = np.stack([numbers(part) for part in GOOD[: len(GOOD) - share]])
    middle = good.mean(0)
    reach = np.linalg.norm(good - middle, axis=1).max()
    # No further from the good ones' mean than √2 times the worst of them.
    assert np.linalg.norm(found - middle) <= math.sqrt(2) * reach


@pytest.mark.parametrize("name", ["mean", "median", "trimmed:0.2", "krum:4", "geometric-median"])
def test_beyond_it_nothing_is_promised_and_the_mean_bears_none(name: str) -> None:
    share = 1 if name == "mean" else 7
    assert np.abs(numbers(averaged(name, spoiled(share, 1e12)))).max() > 1e6


def test_each_is_what_its_name_says() -> None:
    rows = np.stack([numbers(part) for part in GOOD])
    assert np.abs(numbers(averaged("median", GOOD)) - np.median(rows, 0)).max() < 1e-12
    even = np.median(rows[:10], 0)
    assert np.abs(numbers(averaged("median", GOOD[:10])) - even).max() < 1e-12
    inner = np.sort(rows, 0)[3:8].mean(0)  # a fifth of eleven, rounded up
    assert np.abs(numbers(averaged("trimmed:0.2", GOOD)) - inner).max() < 1e-12
    apart = ((rows[:, None] - rows[None]) ** 2).sum(2)
    scores = np.sort(apart, 1)[:, 1:8].sum(1)  # n − f − 2 = 7 others
    assert np.array_equal(numbers(averaged("krum:2", GOOD)), rows[scores.argmin()])
    few = rows[np.argsort(scores)[:9]].mean(0)
    assert np.abs(numbers(averaged("multi-krum:2", GOOD)) - few).max() < 1e-12
    at = numbers(averaged("geometric-median", GOOD))
    pull = ((rows - at) / np.linalg.norm(rows - at, axis=1, keepdims=True)).sum(0)
    assert np.abs(pull).max() < 1e-6  # the gradient of the sum of distances


def test_clipping_moves_the_model_by_the_norm_at_most() -> None:
    found = numbers(averaged("clipped:0.5", spoiled(1, 1e12)))
    assert np.linalg.norm(found) <= 0.5 + 1e-12
    rows = np.stack([numbers(part) for part in GOOD])
    cut = rows * np.minimum(1, 0.5 / np.linalg.norm(rows, axis=1, keepdims=True))
    assert np.abs(numbers(averaged("clipped:0.5", GOOD)) - cut.mean(0)).max() < 1e-12
    far = averaged("clipped:1e6", GOOD)  # nothing is that long
    assert np.array_equal(numbers(far), numbers(averaged("mean", GOOD)))


def test_counts_stay_whole() -> None:
    parts = [{"n": torch.tensor(n), "w": torch.zeros(1)} for n in (3, 4, 8)]
    sent = {"n": torch.tensor(0), "w": torch.zeros(1)}
    for name in AVERAGES:
        assert averaged(name, parts, sent)["n"].dtype == torch.int64


@pytest.mark.parametrize("name", ["median", "trimmed:0.2", "krum:1", "clipped:0.001"])
@pytest.mark.parametrize("algorithm", [srpfl.FedRep, srpfl.SCAFFOLD, srpfl.FedAdam], ids=str)
def test_any_algorithm_takes_any_of_them(algorithm: Any, name: str) -> None:
    run = tiny.simulate(algorithm=algorithm(average=name), participation=srpfl.Everyone())
    plain = tiny.simulate(algorithm=algorithm(), participation=srpfl.Everyone())
    assert run.state is not None
    assert plain.state is not None
    assert not tiny.same(run.state.shared, plain.state.shared)


@pytest.mark.parametrize(
    ("kind", "slot"), [(srpfl.SCAFFOLD, "change"), (srpfl.MimeLite, "gradient")]
)
def test_what_is_sent_beside_the_weights_is_averaged_alike(kind: Any, slot: str) -> None:
    algorithm = kind(average="median")
    parts = algorithm.split(tiny.model())
    answers = [
        Answer(
            client=i,
            time=1.0,
            shared=parts.shared,
            loss=1.0,
            samples=1,
            sent={slot: {n: torch.full_like(v, bad) for n, v in parts.trained.items()}},
        )
        for i, bad in enumerate((0.0, 1e9, 0.0))
    ]
    after = algorithm.update(parts.shared, algorithm.server_state(parts), answers, 3)[1]
    assert all(not value.any() for part in after.values() for value in part.values())


@pytest.mark.parametrize("name", sorted(AVERAGES.keys() - {"private", "secure"}))
def test_the_order_of_names_does_not_matter(name: str) -> None:
    sent, *parts = GOOD
    turned = dict(reversed(sent.items()))
    assert tiny.same(averaged(name, parts, turned), averaged(name, parts, sent))


class Stop(srpfl.Watcher):
    def after(self, run: srpfl.Run) -> bool:
        return len(run.rounds) == 2


@pytest.mark.parametrize("name", ["geometric-median", "clipped:0.05"])
def test_a_run_with_work_in_flight_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    how: dict[str, Any] = {
        "algorithm": srpfl.FedAvg(average=name),
        "participation": srpfl.FedBuff(k=2),
        "evaluate_every": 0,
    }
    whole = tiny.simulate(**how)
    tiny.simulate(**how, out=tmp_path, watchers=[Stop()])
    again = tiny.simulate(**how, out=tmp_path, resume=True)
    assert whole.state is not None
    assert again.state is not None
    assert list(again.state.shared) == list(whole.state.shared)
    assert tiny.same(again.state.shared, whole.state.shared)


def test_the_command_takes_them_and_says_what_is_wrong() -> None:
    config = Config(method="fedavg", set={"algorithm": {"average": "trimmed:0.2"}})
    assert build_algorithm(config, method("fedavg")).average == "trimmed:0.2"
    for wrong in ("krum:x", "median:3", "meen", "trimmed:0.5", "krum:1.5", "clipped:-1"):
        with pytest.raises(srpfl.SrpflError) as error:
            srpfl.FedAvg(average=wrong)
        assert "\n" not in str(error.value)


def test_folders_from_before_there_was_a_choice_are_still_the_same() -> None:
    from srpfl.runs.describe import describe

    assert "average" not in describe(srpfl.FedAvg())
    assert describe(srpfl.FedAvg(average="median"))["average"] == "median"

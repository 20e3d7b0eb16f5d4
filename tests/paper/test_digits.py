"""The paper's promise on the embedded digits: sooner there, and nothing lost at the end."""

from __future__ import annotations

from statistics import fmean

import pytest

import srpfl
from srpfl.options.config import Config
from srpfl.options.experiment import experiment

SEEDS, ROUNDS = 3, 30


def play(method: str, seed: int) -> srpfl.Run:
    choices = experiment(Config(method=method, seed=seed, rounds=ROUNDS, device="cpu"))
    return srpfl.simulate(**{**choices, "evaluations": ["personalised"]})


@pytest.mark.slow
def test_srpfl_is_sooner_there_and_ends_where_fedrep_ends() -> None:
    fedrep = [play("fedrep", seed) for seed in range(SEEDS)]
    adaptive = [play("srpfl", seed) for seed in range(SEEDS)]
    gap = fmean(run.accuracy[-1].mean for run in fedrep) - fmean(
        run.accuracy[-1].mean for run in adaptive
    )
    assert gap <= 0.02
    for waiting, going_on in zip(fedrep, adaptive, strict=True):
        half_way = waiting.accuracy[ROUNDS // 2 - 1]
        assert half_way.round == ROUNDS // 2
        reached = going_on.time_to(half_way.mean)
        assert reached is not None
        assert reached <= 0.4 * half_way.time

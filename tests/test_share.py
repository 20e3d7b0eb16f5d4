"""Evaluation on a share of the clients: the same ones, near the whole, and with an honest error."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import srpfl
import tiny
from srpfl.engine.base import Score
from srpfl.errors import ConfigError
from srpfl.loop.evaluation import sample_of, standard_error
from srpfl.report.content import content
from srpfl.runs.doctor import examine
from srpfl.task import Classification, Regression


def test_the_share_has_the_values_that_its_clients_have_among_all(tmp_path: Path) -> None:
    whole = tiny.simulate(rounds=3)
    some = tiny.simulate(rounds=3, evaluate_share=0.5, out=tmp_path / "run")
    assert some.rounds == whole.rounds
    for mine, all_ in zip(some.evaluations, whole.evaluations, strict=True):
        assert len(mine.sample) == 3
        assert mine.sample == some.evaluations[0].sample
        assert mine.clients == [all_.clients[client] for client in mine.sample]
        assert mine.error > 0
        assert not all_.sample
    assert srpfl.Run.load(tmp_path / "run").evaluations == some.evaluations
    assert examine(tmp_path / "run").whole
    assert {row.client for row in some.to_pandas("clients").itertuples()} == {*mine.sample}
    assert some.scores[-1].error == some.to_pandas()["standard_error"].iloc[-2]
    assert (
        content([some])["runs"][0]["curves"]["personalised"]["error"][-1] == some.scores[-1].error
    )


def test_a_resumed_run_must_have_the_same_share(tmp_path: Path) -> None:
    tiny.simulate(rounds=3, evaluate_share=2, out=tmp_path / "run")
    tiny.simulate(rounds=3, evaluate_share=2, out=tmp_path / "run", resume=True)
    with pytest.raises(srpfl.errors.RunFolderError, match="evaluate_share"):
        tiny.simulate(rounds=3, evaluate_share=3, out=tmp_path / "run", resume=True)


@pytest.mark.parametrize("share", [0, 0.0, -1, 1.5, "x"])
def test_a_share_that_is_none_is_a_sentence(share) -> None:
    with pytest.raises(ConfigError, match="evaluate_share"):
        tiny.simulate(evaluate_share=share)


@pytest.mark.parametrize("task", [Classification(), Regression(metric="rmse")])
def test_the_error_is_how_far_samples_are_from_the_whole(task) -> None:
    """Of a known population of 2,000 clients of uneven sizes, 1,000 samples of 200."""
    rng = np.random.default_rng(0)
    weights = rng.integers(1, 40, size=2000)
    scores = [
        Score(i, (float(rng.binomial(w, rng.random())),), float(w)) for i, w in enumerate(weights)
    ]
    truth = value(scores, task)
    found, told = [], []
    for seed in range(1000):
        some = [scores[client] for client in sample_of(2000, 200, seed)]
        found.append(value(some, task) - truth)
        told.append(standard_error(some, task, 0.9))
    assert math.sqrt(np.mean(np.square(found))) == pytest.approx(np.mean(told), rel=0.08)


def value(scores, task) -> float:
    return task.value([sum(s.sums[0] for s in scores)], sum(s.weight for s in scores))


def test_the_report_of_a_million_clients_is_made_from_those_tested() -> None:
    run = tiny.simulate(rounds=2, evaluate_share=0.5)
    config = {**run.config, "data": {**run.config["data"], "clients": 1_000_000}}
    large = srpfl.Run(config, run.rounds, run.evaluations)
    [shown] = content([large])["runs"]
    assert shown["clients"] == []
    assert all(half is not None for half in shown["halves"])

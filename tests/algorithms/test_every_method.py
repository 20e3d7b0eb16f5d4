"""What every method of the command has in common, each at its smallest."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import srpfl
import tiny
from algorithms.every import KINDS, remembered, simulate
from srpfl.runs.records import RoundRecord

every = pytest.mark.parametrize("name", KINDS)


@pytest.mark.slow
@every
def test_engines_agree(name: str) -> None:
    alone = remembered(simulate(name, rounds=2, precision="float64"))
    for engine in ("vectorised", "workers"):
        other = remembered(simulate(name, rounds=2, precision="float64", engine=engine))
        assert other.keys() == alone.keys()
        for key, value in alone.items():
            # Sums in another order, in double precision.
            assert torch.allclose(other[key].double(), value.double(), rtol=1e-9, atol=1e-9), key


class Killed(srpfl.Watcher):
    """Ends the process in the middle of a round, as kill -9 does."""

    def round(self, record: RoundRecord) -> None:
        if record.round == 2:
            os.kill(os.getpid(), signal.SIGKILL)


@every
def test_a_killed_run_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    policy = srpfl.Doubling(start=2, every=1)

    def killed() -> None:
        torch.set_num_threads(1)  # the threads of the parent are not there after a fork
        simulate(name, participation=policy, out=tmp_path, watchers=[Killed()])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        process = mp.get_context("fork").Process(target=killed)
        process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    whole = simulate(name, participation=policy)
    again = simulate(name, participation=policy, out=tmp_path, resume=True)
    assert tiny.same(remembered(again), remembered(whole))
    assert [r.participants for r in again.rounds] == [r.participants for r in whole.rounds]


@every
@pytest.mark.parametrize(
    "policy", [srpfl.Doubling(start=1, every=1), srpfl.Auto(start=2)], ids=type
)
def test_it_works_under_adaptive_participation(name: str, policy: Any) -> None:
    run = simulate(name, participation=policy, rounds=4, evaluate_every=4)
    assert all(torch.isfinite(value).all() for value in remembered(run).values())
    assert 0 <= run.evaluations[-1].value <= 1

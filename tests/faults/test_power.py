"""A run that loses power at any moment goes on from the last state that the disk was waited for."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import srpfl
import tiny
from algorithms.every import algorithm
from faults.nursery import POLICIES, model
from faults.power import Journal, lose_power, promised
from faults.test_kills import Case, case
from runs.test_crash import same_as
from srpfl.errors import SrpflError
from srpfl.options.methods import METHODS
from srpfl.runs import folder as folders
from srpfl.runs.doctor import examine
from srpfl.runs.folder import RunFolder

ROUNDS = 6
CASES = 3  # of each trial: twenty take all methods
LOSSES = {True: 4, False: 2}  # of a run that is waited for or not, each followed by another


class Begun(srpfl.Watcher):
    """Remembers after which round a run went on, and that a run which began is promised to be
    there."""

    def __init__(self, journal: Journal) -> None:
        self.journal, self.done = journal, -1

    def begin(self, name: str, rounds: int, done: int) -> None:
        self.done = done
        self.journal.promise(done)


def play(root: Path, case: Case, rng: random.Random, *, sync: bool) -> tuple[Journal, int]:
    """Begin or go on with a run, and end it: what became of the folder, and where it went on."""
    folder, journal = root / "run", Journal(root)
    begun = Begun(journal)
    kind, implied = METHODS[case.method].kind, METHODS[case.method].participation
    with waiting_at_times(journal, rng), journal.watching():
        tiny.simulate(
            data=tiny.data(clients=6, per_client=8),
            model=model(kind, large=False),
            algorithm=algorithm(kind),
            participation=POLICIES[case.policy if implied == "everyone" else implied],
            engine=case.engine,
            rounds=ROUNDS,
            evaluate_every=2,
            out=folder,
            resume=(folder / "config.json").exists(),
            sync=sync,
            watchers=[begun],
        )
    return journal, begun.done


@contextlib.contextmanager
def waiting_at_times(journal: Journal, rng: random.Random) -> Iterator[None]:
    """Wait for the disk at some checkpoints, at some for few of the clients' parts."""
    real = RunFolder._settle

    def settle(self: RunFolder, *most: float) -> None:
        if not most or rng.random() < 0.5:  # at the beginning and at the end there is no limit
            real(self, *(rng.choice([0.0, each]) for each in most))
            if (synced := self._checkpoints._synced) is not None:
                journal.promise(int(synced.name))
        self._next_wait = 0.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "_settle", settle)
        patch.setattr(folders, "FIRST_WAIT", 0.0)
        yield


@pytest.mark.faults
@pytest.mark.parametrize("sync", [True, False])
def test_after_a_loss_of_power_a_run_goes_on_exactly(
    sync: bool, trial: int, quick_path: Path, capsys: Any
) -> None:
    for place in range(CASES):
        played = case(trial, place, ("loop", "vectorised"), CASES)
        seed = f"{trial} {place}"
        root = quick_path / f"{place}-whole"
        root.mkdir()
        whole, _ = play(root, played, random.Random(seed), sync=sync)
        for loss in range(LOSSES[sync]):
            rng, journal = random.Random(f"{seed} {loss}"), whole
            for again in range(2):  # the second time while it goes on
                disk = quick_path / f"{place}-{loss}-{again}"
                point = rng.randint(0, len(journal.events))
                lose_power(journal, point, disk, rng)
                due = promised(journal.events[:point])
                try:
                    journal, done = play(disk, played, rng, sync=sync)
                except SrpflError:
                    if sync:
                        raise
                    break  # a clear sentence will do
                assert done >= (due or 0) or not sync
                same_as(root / "run", disk / "run")
                if done < ROUNDS:  # else nothing was left to do, and the state before was not read
                    assert examine(disk / "run").whole
    capsys.readouterr()

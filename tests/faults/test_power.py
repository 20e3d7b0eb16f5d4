"""A run that loses power at any moment goes on from the last state that the disk was waited for."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

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
from srpfl.runs.files import sync, write_text
from srpfl.runs.folder import RunFolder

ROUNDS = 6
CASES = 3  # of each trial: twenty take all methods
LOSSES = 4  # of each case
TIMES = 2  # the second while it goes on


class Begun(srpfl.Watcher):
    """Remembers after which round a run went on, and that a run which began is promised to be
    there."""

    def __init__(self, journal: Journal) -> None:
        self.journal, self.done = journal, -1

    def begin(self, name: str, rounds: int, done: int) -> None:
        self.done = done
        self.journal.promise(done)


def play(root: Path, case: Case, rng: random.Random, *, wait: bool = True) -> tuple[Journal, int]:
    """Begin or go on with a run, and end it: what became of the folder, and where it went on."""
    root.mkdir(exist_ok=True)
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
            sync=wait,
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


def after_a_loss(journal: Journal, disk: Path, rng: random.Random) -> int | None:
    """Let a folder be what a disk may hold after a loss of power at any moment. Returned is the
    round of the state that is promised to be there, if any is."""
    point = rng.randint(0, len(journal.events))
    lose_power(journal, point, disk, rng)
    return promised(journal.events[:point])


@pytest.mark.faults
def test_after_a_loss_of_power_a_run_goes_on_exactly(trial: int, quick_path: Path) -> None:
    for place in range(CASES):
        played, rng = chosen(trial, place)
        root = quick_path / f"{place}-whole"
        whole, _ = play(root, played, rng)
        for loss in range(LOSSES):
            journal = whole
            for again in range(TIMES):
                disk = quick_path / f"{place}-{loss}-{again}"
                due = after_a_loss(journal, disk, rng)
                assert due is None or (disk / "run" / "config.json").exists()
                journal, done = play(disk, played, rng)
                assert done >= (due or 0)
                same_as(root / "run", disk / "run")
                if done < ROUNDS:  # else nothing was left to do, and the state before was not read
                    assert examine(disk / "run").whole


@pytest.mark.faults
def test_without_waiting_for_the_disk_a_run_goes_on_exactly_or_says_why_not(
    trial: int, quick_path: Path
) -> None:
    for place in range(CASES):
        played, rng = chosen(trial, place)
        root = quick_path / f"{place}-whole"
        whole, _ = play(root, played, rng, wait=False)
        for loss in range(LOSSES):
            disk = quick_path / f"{place}-{loss}"
            after_a_loss(whole, disk, rng)
            with contextlib.suppress(SrpflError):
                play(disk, played, rng, wait=False)
                same_as(root / "run", disk / "run")


def test_what_was_waited_for_is_on_the_disk_and_the_rest_may_be_there_or_not(
    quick_path: Path,
) -> None:
    root, there = quick_path / "root", set[tuple[bytes | None, ...]]()
    root.mkdir()
    (root / "old").write_bytes(b"before")
    journal = Journal(root)
    with journal.watching():
        write_text(root / "safe", "safe", durable=True)
        write_text(root / "named", "loose")
        sync(root)
        (root / "old").rename(root / "new")
    for seed in range(200):
        disk = quick_path / f"{seed}"
        lose_power(journal, len(journal.events), disk, random.Random(seed))
        files = (disk / name for name in ("safe", "named", "old", "new"))
        there.add(tuple(file.read_bytes() if file.exists() else None for file in files))
    assert {safe for safe, *_ in there} == {b"safe"}
    assert {named for _, named, *_ in there} > {b"", b"lo", bytes(5), b"loo\0\0", b"loose"}
    assert {moved for *_, moved in there} == {None, b"before"}
    assert all((old is None) != (new is None) for *_, old, new in there)


def chosen(trial: int, place: int) -> tuple[Case, random.Random]:
    return case(trial, place, ("loop", "vectorised"), CASES), random.Random(f"{trial} {place}")

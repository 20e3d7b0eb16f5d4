"""A run that is killed, in any way and at any time, goes on as if nothing had happened."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path

import pytest

from srpfl.options.methods import METHODS

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]

ENGINES = ("workers", "vectorised", "auto", "loop", "ray")
NAMES = tuple(METHODS)
POLICIES = ("everyone", "auto", "fedbuff")  # of methods whose name implies none
TAG = b"SRPFL_NURSERY=%d"
RECORDS = ("config.json", "rounds.jsonl", "evaluations.jsonl")
LEFT = 5.0  # seconds after which nothing of a killed run may be there any more


@dataclass(frozen=True)
class Case:
    """What is played."""

    engine: str
    method: str
    policy: str

    @property
    def twin(self) -> Case:
        """The case whose run has the same bytes: Ray spreads clients as worker processes do."""
        return replace(self, engine="workers") if self.engine == "ray" else self


def case(trial: int, place: int, engines: Sequence[str], kinds: int) -> Case:
    """That of a trial of one of several kinds, so that twenty trials of six kinds take every engine
    in every kind, and every method at least twice, each time with another engine and policy."""
    number = kinds * trial + place
    return Case(
        engines[trial % len(engines)],
        NAMES[number % len(NAMES)],
        POLICIES[(number + number // len(NAMES)) % len(POLICIES)],
    )


class Nursery:
    """Starts runs, and knows what those come to that nobody kills."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("nursery.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self._whole: dict[Case, dict[str, bytes]] = {}

    def ask(self, **message: object) -> int | None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        answer: int | None = json.loads(self.process.stdout.readline())
        return answer

    def start(self, folder: Path, case: Case, *, resume: bool = False) -> int:
        number = self.ask(folder=str(folder), resume=resume, **asdict(case))
        assert number is not None
        return number

    def wait(self, number: int) -> int:
        code = self.ask(wait=number)
        assert code is not None, "it does not end"
        return code

    def whole(self, case: Case) -> dict[str, bytes]:
        case = case.twin
        if case not in self._whole:
            folder = self.folder / "-".join(astuple(case))
            assert self.wait(self.start(folder, case)) == 0, said(folder)
            self._whole[case] = kept(folder)
        return self._whole[case]


@pytest.fixture(scope="module")
def nursery(in_memory: Path) -> Iterator[Nursery]:
    nursery = Nursery(in_memory)
    yield nursery
    assert nursery.process.stdin is not None
    assert nursery.process.stdout is not None
    nursery.process.stdin.close()
    assert nursery.process.wait(30) == 0
    nursery.process.stdout.close()


def kept(folder: Path) -> dict[str, bytes]:
    """The records, and a hash of all weights: the server's, and what clients keep."""
    files = [*(folder / name for name in RECORDS), folder.with_suffix(".weights")]
    return {
        "weights" if file.suffix == ".weights" else file.name: file.read_bytes() for file in files
    }


def said(folder: Path) -> str:
    return folder.with_suffix(".stderr").read_text()


def stat(number: int) -> list[str]:
    """State, parent, group and session of a process, and more."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ["X", "0", "0", "0"]


def lives(number: int) -> bool:
    return stat(number)[0] not in "ZX"


def living(column: int, number: int) -> list[int]:
    """All processes that have that number as their parent (1) or session (3)."""
    every = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [each for each in every if int(stat(each)[column]) == number and lives(each)]


def workers_of(number: int) -> list[int]:
    return living(1, number)


def marked(number: int) -> set[int]:
    """Processes that were started with a run's mark in their environment, wherever they are now."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if TAG % number in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(entry.name))
    return {each for each in found if lives(each)}


def called(number: int) -> bytes:
    """The command of a process; nothing if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{number}/cmdline").read_bytes()
    return b""


def nothing_is_left(number: int) -> None:
    deadline = time.monotonic() + LEFT
    while there := {*living(3, number), *marked(number)}:
        assert time.monotonic() < deadline, f"left: {[called(each) for each in there]}"
        time.sleep(0.02)


def the_main_process(number: int, rng: random.Random) -> None:
    os.kill(number, signal.SIGKILL)


def the_group(number: int, rng: random.Random) -> None:
    os.killpg(number, signal.SIGKILL)


def terminated(number: int, rng: random.Random) -> None:
    os.kill(number, signal.SIGTERM)


def hung_up(number: int, rng: random.Random) -> None:
    os.killpg(number, signal.SIGHUP)  # as a terminal does that is closed


def interrupted(number: int, rng: random.Random) -> None:
    os.killpg(number, signal.SIGINT)  # as a terminal does


def interrupted_twice(number: int, rng: random.Random) -> None:
    os.killpg(number, signal.SIGINT)
    time.sleep(rng.choice([0.0, 0.001, 0.01, 0.1]) * rng.random())
    os.killpg(number, signal.SIGINT)  # also one that has ended: the nursery has not looked yet


Way = Callable[[int, random.Random], None]
WAYS = (the_main_process, the_group, terminated, hung_up, interrupted, interrupted_twice)


def rounds_done(folder: Path) -> int:
    lines = folder / "rounds.jsonl"
    return lines.read_bytes().count(b"\n") if lines.exists() else 0


def at_some_moment(folder: Path, number: int, engine: str, rng: random.Random) -> bool:
    """Wait for one: before the first round, or at any time of some round. False: missed it."""
    after = rng.choice([0, 1, 2, 3, 5, 6])
    while rounds_done(folder) < after and lives(number):
        time.sleep(0.002)
    start = 5.0 if engine == "ray" else 0.5  # seconds that it takes, about
    time.sleep(rng.random() * (0.05 if after else start))
    return lives(number)


@pytest.mark.parametrize("way", WAYS)
def test_a_killed_run_goes_on(nursery: Nursery, quick_path: Path, way: Way, trial: int) -> None:
    place = WAYS.index(way)
    played = case(trial, place, ENGINES, len(WAYS))
    whole, rng = nursery.whole(played), random.Random(100 * trial + place)
    for attempt in range(10):  # a busy machine may let a run end before it is killed
        folder = quick_path / f"run-{attempt}"
        number = nursery.start(folder, played)
        if met := at_some_moment(folder, number, played.engine, rng):
            way(number, rng)
        code = nursery.wait(number)
        nothing_is_left(number)
        if met and code != 0:
            break
    else:
        pytest.fail("the run was always over before it could be killed")
    assert said(folder) == ""
    again = nursery.start(folder, played, resume=(folder / "config.json").exists())
    assert nursery.wait(again) == 0, said(folder)
    nothing_is_left(again)
    assert kept(folder) == whole


def test_a_killed_worker_is_replaced(nursery: Nursery, quick_path: Path, trial: int) -> None:
    played = case(trial, 0, ("workers", "auto"), 2)
    whole, rng = nursery.whole(played), random.Random(trial)
    for attempt in range(10):  # one may be killed when it has nothing more to do
        folder = quick_path / f"run-{attempt}"
        number = nursery.start(folder, played)
        there = at_some_moment(folder, number, played.engine, rng) and workers_of(number)
        if there:
            os.kill(rng.choice(there), signal.SIGKILL)
        assert nursery.wait(number) == 0, said(folder)
        nothing_is_left(number)
        assert kept(folder) == whole
        if "a worker process died by SIGKILL" in said(folder):
            break
    else:
        pytest.fail("no worker was ever missed")
    assert said(folder).count("\n") == 1, said(folder)


def test_twenty_trials_take_every_engine_in_every_way_and_every_method_twice() -> None:
    made = {(t, p): case(t, p, ENGINES, len(WAYS)) for t in range(20) for p in range(len(WAYS))}
    for place in range(len(WAYS)):
        assert {each.engine for (_, p), each in made.items() if p == place} == {*ENGINES}
    for name in METHODS:
        mine = [each for each in made.values() if each.method == name]
        assert len({each.engine for each in mine}) == len(mine) >= 2
        assert len({each.policy for each in mine}) == len(mine)


def test_workers_that_a_thread_forked_end_with_the_run_also_while_they_compute(
    nursery: Nursery, quick_path: Path
) -> None:
    folder = quick_path / "run"
    number = nursery.ask(folder=str(folder))
    assert number is not None
    while not folder.with_suffix(".computes").exists() and lives(number):
        time.sleep(0.01)
    workers = workers_of(number)
    assert workers, said(folder)
    assert locked(folder)
    for worker in workers:
        assert folder / ".lock" not in opened(worker)
    assert folder / ".lock" in opened(number)
    os.kill(number, signal.SIGKILL)
    nursery.wait(number)
    assert not locked(folder)
    nothing_is_left(number)


def locked(folder: Path) -> bool:
    with (folder / ".lock").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def opened(number: int) -> list[Path]:
    """The files that a process has open."""
    return [Path(os.readlink(entry)) for entry in Path(f"/proc/{number}/fd").iterdir()]


def test_ctrl_c_twice_ends_the_command_with_a_sentence(
    nursery: Nursery, quick_path: Path, trial: int
) -> None:
    folder, rng = quick_path / "run", random.Random(trial)
    told = f"run --data digits --engine workers --rounds 500 --quiet --out {folder}"
    number = nursery.ask(folder=str(folder), command=told.split())
    assert number is not None
    while rounds_done(folder) < 1 and lives(number):
        time.sleep(0.01)
    interrupted_twice(number, rng)
    assert nursery.wait(number) == 130, said(folder)
    nothing_is_left(number)
    assert said(folder).splitlines()[-1] == "srpfl: stopped"
    assert "Traceback" not in said(folder)

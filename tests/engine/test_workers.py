"""What becomes of a cohort when its worker processes fail or die."""

from __future__ import annotations

import errno
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from srpfl.core.processes import lines_of
from srpfl.engine.loop import LoopEngine
from srpfl.engine.messages import Gone
from srpfl.engine.workers import WorkersEngine, can_fork
from srpfl.errors import SrpflError

from .cases import CASES, distance, play

pytestmark = pytest.mark.skipif(not can_fork(), reason="workers are forked, on Linux")
CASE = CASES["fedavg"]


def plain() -> LoopEngine:
    return LoopEngine(CASE.model(), CASE.data())


def pids(engine: WorkersEngine) -> list[int]:
    return [worker.process.pid or 0 for worker in engine._workers]


def test_a_worker_that_dies_between_rounds_is_replaced(capfd: pytest.CaptureFixture[str]) -> None:
    with WorkersEngine(plain, CASE.data(), workers=2) as engine:
        first, before = play(engine, CASE), pids(engine)
        os.kill(before[0], signal.SIGKILL)
        os.waitid(os.P_PID, before[0], os.WEXITED | os.WNOWAIT)
        assert distance(play(engine, CASE), first) == 0.0
        assert pids(engine)[0] != before[0]
        assert pids(engine)[1] == before[1]
    assert capfd.readouterr().err == (
        "srpfl: a worker process died by SIGKILL (out of memory?): another one does its clients "
        "again\n"
    )


def test_a_worker_that_dies_at_its_work_is_replaced(tmp_path: Path) -> None:
    class Mortal(LoopEngine):
        def train(self, jobs: Any) -> Any:
            answer = super().train(jobs)
            died = tmp_path / "died"
            if not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

    with WorkersEngine(lambda: Mortal(CASE.model(), CASE.data()), CASE.data(), workers=2) as engine:
        assert distance(play(engine, CASE), play(plain(), CASE)) == 0.0
    assert (tmp_path / "died").exists()


def test_work_that_kills_every_worker_is_given_up_with_a_sentence() -> None:
    class Deadly(LoopEngine):
        def train(self, jobs: Any) -> Any:
            os._exit(3)

    deadly = WorkersEngine(lambda: Deadly(CASE.model(), CASE.data()), CASE.data(), workers=2)
    with (
        deadly as engine,
        pytest.raises(SrpflError, match="died 3 times at the same work, the last one with exit"),
    ):
        play(engine, CASE)
    assert pids(engine) == []


def test_a_worker_that_dies_while_it_is_spoken_to_is_gone_not_an_error() -> None:
    with WorkersEngine(plain, CASE.data(), workers=1) as engine:
        expected, [number] = play(engine, CASE), pids(engine)
        os.kill(number, signal.SIGSTOP)
        killing = threading.Timer(0.2, os.kill, (number, signal.SIGKILL))
        killing.start()
        with pytest.raises(Gone):
            engine._workers[0].channel.send(b"more than a pipe holds" * 10**6)
        killing.join()
        assert distance(play(engine, CASE), expected) == 0.0


class TwoWordsError(Exception):
    """Pickle cannot make another of these."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} {other}")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KeyError("missing"), KeyError),
        (MemoryError("no room"), MemoryError),
        (TwoWordsError("quite", "odd"), RuntimeError),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_an_error_in_a_worker_is_that_error_and_says_where(
    error: Exception, kind: type[Exception]
) -> None:
    class Broken(LoopEngine):
        def train(self, jobs: Any) -> Any:
            raise error

    broken = WorkersEngine(lambda: Broken(CASE.model(), CASE.data()), CASE.data(), workers=2)
    with broken as engine, pytest.raises(kind, match=str(error)) as caught:
        play(engine, CASE)
    line = lines_of(caught.value)[-1]
    assert (line.filename, line.name, line.line) == (__file__, "train", "raise error")


def test_no_file_left_for_a_line_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(name: str) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", none_left)
    engine = WorkersEngine(plain, CASE.data(), workers=1)
    with engine, pytest.raises(SrpflError, match=r"cannot start a worker process .Too many open"):
        play(engine, CASE)


def test_no_memory_left_for_an_answer_is_a_lack_of_memory(
    capfd: pytest.CaptureFixture[str],
) -> None:
    resource = pytest.importorskip("resource")

    class Full(LoopEngine):
        def train(self, jobs: Any) -> Any:
            found = super().train(jobs)
            with open("/proc/self/statm") as file:
                taken = int(file.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (taken, resource.RLIM_INFINITY))
            return found, torch.zeros(1).expand(1 << 20)

    full = WorkersEngine(lambda: Full(CASE.model(), CASE.data()), CASE.data(), workers=1)
    with full as engine, pytest.raises((MemoryError, RuntimeError), match=r"share|allocate"):
        play(engine, CASE)
    assert "Traceback" not in capfd.readouterr().err

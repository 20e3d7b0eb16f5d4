"""One process per core, one thread each: clients spread over them, the same for every run.

Small batches gain nothing from a second thread, and Python's lock lets only one client be trained
at a time in a process. Workers are forked, so they see the model and the data without a copy.

A worker that dies is replaced and given its work again. Workers end with their parent, however it
ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import heapq
import multiprocessing as mp
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from srpfl.core.processes import Failure
from srpfl.data.base import Federated
from srpfl.data.joined import joined
from srpfl.engine.base import Engine, Job, Local, Score
from srpfl.engine.messages import Channel, Gone, line
from srpfl.errors import SrpflError

Kind = Literal["train", "test"]
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as in malloc.h

DEATHS = 3  # of workers at the same work, until it is given up
LESS = "close other programs, or take engine='loop' (--engine loop), which works in one process"


class WorkersEngine:
    """Spreads a cohort over processes, each with an engine of its own."""

    def __init__(
        self, make: Callable[[], Engine], data: Federated, *, workers: int | None = None
    ) -> None:
        self.make, self.data = make, joined(data)
        self.count = workers or cores()
        self._workers: list[_Worker] = []
        self._said = False

    def train(self, jobs: Sequence[Job]) -> list[list[Local]]:
        return self._spread("train", jobs)

    def test(self, jobs: Sequence[Job]) -> list[list[Score]]:
        return self._spread("test", jobs)

    def close(self) -> None:
        """End the worker processes; the next job would start new ones. Where Ctrl-C comes in
        between, another call goes on."""
        for worker in self._workers:
            worker.process.kill()  # all at once; none has anything to lose
        while self._workers:
            self._workers[-1].end()
            self._workers.pop()

    def __enter__(self) -> WorkersEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _spread(self, kind: Kind, jobs: Sequence[Job]) -> list[list[Any]]:
        places = [(number, place) for number, job in enumerate(jobs) for place in _places(job)]
        numbers = [self.data.number(jobs[n].run, jobs[n].clients[p]) for n, p in places]
        sizes = [self.data.size(number) for number in numbers]
        shares = [[places[i] for i in share] for share in spread(sizes, self.count)]
        work = {worker: (kind, parts_of(jobs, s)) for worker, s in enumerate(shares) if s}
        answers: dict[tuple[int, int], Any] = {}
        try:
            for worker, found in self._done(work):
                answers |= dict(zip(shares[worker], found, strict=True))
        except BaseException:
            self.close()  # so that no late answer is taken for the next job's
            raise
        return [[answers[n, place] for place in _places(job)] for n, job in enumerate(jobs)]

    def _done(self, work: Mapping[int, Any]) -> Iterator[tuple[int, list[Any]]]:
        """Each worker's answers to its work. What a worker had when it died is done again, all of
        it: an answer comes whole or not at all."""
        while len(self._workers) < self.count:
            self._workers.append(_start(self.make))
        for worker in work:
            self._give(worker, work[worker])
        for worker in work:
            deaths = 0
            while (answer := self._answer(worker)) is None:
                deaths += 1
                self._replace(worker, deaths)
                self._give(worker, work[worker])
            if isinstance(answer, Failure):
                answer.raise_here()
            yield worker, [each for part in answer for each in part]

    def _give(self, worker: int, work: Any) -> None:
        with contextlib.suppress(Gone):  # which is noticed when its answer is due
            self._workers[worker].channel.send(work)

    def _answer(self, worker: int) -> Any:
        """None if the worker has died."""
        try:
            return self._workers[worker].channel.receive()
        except Gone:
            return None

    def _replace(self, worker: int, deaths: int) -> None:
        gone = self._workers[worker]
        gone.process.join(timeout=1)  # it has closed its line, so it is as good as dead
        gone.end()
        if deaths >= DEATHS:
            raise SrpflError(
                f"worker processes died {deaths} times at the same work, the last one "
                f"{gone.cause}: {LESS}"
            )
        if not self._said:
            text = f"a worker process died {gone.cause}: another one does its clients again"
            print(f"srpfl: {text}", file=sys.stderr)
            self._said = True
        self._workers[worker] = _start(self.make)


@dataclass(frozen=True)
class _Worker:
    process: mp.process.BaseProcess
    channel: Channel

    @property
    def cause(self) -> str:
        """How it died."""
        code = self.process.exitcode
        if code is None or code >= 0:
            return f"with exit code {code}"
        name = signal.Signals(-code).name
        return f"by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")

    def end(self) -> None:
        self.process.kill()
        self.process.join(timeout=5)
        self.channel.close()


def spread(sizes: Sequence[int], workers: int) -> list[list[int]]:
    """Places for each worker, so that all have about as much to do: the largest first, each to
    the worker that has least.

    >>> spread([5, 1, 3, 4], 2)
    [[0, 1], [2, 3]]
    """
    shares: list[list[int]] = [[] for _ in range(workers)]
    loads = [(0, worker) for worker in range(workers)]
    for place in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
        load, worker = heapq.heappop(loads)
        shares[worker].append(place)
        heapq.heappush(loads, (load + sizes[place], worker))
    return [sorted(share) for share in shares]


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _places(job: Job) -> range:
    return range(len(job.clients))


def parts_of(jobs: Sequence[Job], share: Sequence[tuple[int, int]]) -> list[Job]:
    """A worker's share of the jobs, its clients in order."""
    numbers = dict.fromkeys(number for number, _ in share)
    return [_part(jobs[n], [place for number, place in share if number == n]) for n in numbers]


def _part(job: Job, places: Sequence[int]) -> Job:
    return replace(
        job,
        clients=[job.clients[place] for place in places],
        personal=[job.personal[place] for place in places],
        own=[job.own[place] for place in places] if job.own else (),
    )


def _start(make: Callable[[], Engine]) -> _Worker:
    try:
        near, far = line()
    except OSError as error:
        raise _cannot_start(error) from error
    process = mp.get_context("fork").Process(target=_serve, args=(make, far), daemon=True)
    with warnings.catch_warnings(), _no_interrupt():
        # Python warns of forking beside threads. The child computes with one thread of its own.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            process.start()
        except OSError as error:
            near.close()
            raise _cannot_start(error) from error
        finally:
            far.close()
    return _Worker(process, near)


def _cannot_start(error: OSError) -> SrpflError:
    return SrpflError(f"cannot start a worker process ({error.strerror}): {LESS}")


@contextlib.contextmanager
def _no_interrupt() -> Iterator[None]:
    """Ctrl-C waits: a child has to be ready to ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(make: Callable[[], Engine], channel: Channel) -> None:
    """A worker's life: build an engine, then answer jobs until nobody asks any more."""
    _leave_signals_to_the_parent()
    threading.Thread(target=_end_with_the_parent, args=(channel,), daemon=True).start()
    torch.set_num_threads(1)
    keep_memory()
    engine: Engine | None = None
    with contextlib.suppress(Gone):
        while True:
            try:
                kind, jobs = channel.receive()
                engine = engine or make()
                channel.send(engine.train(jobs) if kind == "train" else engine.test(jobs))
            except Gone:
                raise
            except BaseException as error:
                channel.send(Failure(error))


def _leave_signals_to_the_parent() -> None:
    """Ctrl-C comes to all processes, and it is for the parent to say what becomes of the workers.
    What it does about other signals is not for them to do too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _end_with_the_parent(channel: Channel) -> None:
    """Also in the middle of a job. The system's own word that a parent has died will not do: it
    means the thread that forked, which may end long before."""
    channel.wait_until_gone()
    os._exit(1)


def keep_memory() -> None:
    """Tell the C library to use freed memory again instead of giving it back to the system:
    fresh pages for every round cost as much as the copies into them."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for option in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            library.mallopt(option, 1 << 30)


def can_fork() -> bool:
    """Whether this system has all that workers need."""
    return sys.platform.startswith("linux")

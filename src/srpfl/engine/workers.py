"""One process per core, one thread each: clients spread over them, the same for every run.

Small batches gain nothing from a second thread, and Python's lock lets only one client be trained
at a time in a process. Workers are forked, so they see the model and the data without a copy.
"""

from __future__ import annotations

import contextlib
import ctypes
import heapq
import multiprocessing as mp
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

from srpfl.data.base import Federated
from srpfl.engine.base import Engine, Job, Local, Score
from srpfl.engine.messages import Channel, Memory
from srpfl.errors import SrpflError

Work = Literal["train", "test"]
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as in malloc.h


class WorkersEngine:
    """Spreads a cohort over processes, each with an engine of its own."""

    def __init__(
        self, make: Callable[[], Engine], data: Federated, *, workers: int | None = None
    ) -> None:
        self.make, self.data = make, data
        self.count = workers or cores()
        self._workers: list[tuple[mp.process.BaseProcess, Channel]] = []

    def train(self, job: Job) -> list[Local]:
        return self._spread("train", job)

    def test(self, job: Job) -> list[Score]:
        return self._spread("test", job)

    def close(self) -> None:
        """End the worker processes; the next job would start new ones."""
        for process, channel in self._workers:
            with contextlib.suppress(OSError):
                channel.send(None)
            channel.close()
            process.join(timeout=5)
            if process.is_alive():
                process.terminate()
        self._workers = []

    def __enter__(self) -> WorkersEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _spread(self, work: Work, job: Job) -> list[Any]:
        if not self._workers:
            self._workers = [_start(self.make) for _ in range(self.count)]
        sizes = [self.data.size(client) for client in job.clients]
        shares = spread(sizes, self.count)
        channels = [channel for _, channel in self._workers]
        busy = [(line, share) for line, share in zip(channels, shares, strict=True) if share]
        try:
            for line, share in busy:
                line.send((work, _part(job, share)))
            answers: dict[int, Any] = {}
            for line, share in busy:
                answers |= dict(zip(share, _answer(line), strict=True))
        except BaseException:
            self.close()  # so that no late answer is taken for the next job's
            raise
        return [answers[place] for place in range(len(job.clients))]


def spread(sizes: Sequence[int], workers: int) -> list[list[int]]:
    """Places for each worker, so that all have about as much to do: the largest first, each to
    whoever has least.

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


def _part(job: Job, share: Sequence[int]) -> Job:
    return replace(
        job,
        clients=[job.clients[place] for place in share],
        personal=[job.personal[place] for place in share],
    )


def _start(make: Callable[[], Engine]) -> tuple[mp.process.BaseProcess, Channel]:
    context = mp.get_context("fork")
    ours, theirs = context.Pipe()
    there, back = Memory(), Memory()
    process = context.Process(target=_serve, args=(make, Channel(theirs, back, there)), daemon=True)
    with warnings.catch_warnings():
        # Python warns of forking beside threads. The child computes with one thread of its own.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    theirs.close()
    return process, Channel(ours, there, back)


def _serve(make: Callable[[], Engine], channel: Channel) -> None:
    """A worker's life: build an engine, then answer jobs until told to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    _keep_memory()
    engine: Engine | None = None
    while True:
        try:
            message = channel.receive()
        except (EOFError, OSError):
            return
        if message is None:
            return
        try:
            engine = engine or make()
            work, job = message
            answer: Any = engine.train(job) if work == "train" else engine.test(job)
        except SrpflError as error:
            answer = error
        except Exception:
            answer = RuntimeError("a worker process failed:\n" + traceback.format_exc())
        channel.send(answer)


def _keep_memory() -> None:
    """Tell the C library to use freed memory again instead of giving it back to the system:
    fresh pages for every round cost as much as the copies into them."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for option in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            library.mallopt(option, 1 << 30)


def _answer(channel: Channel) -> Sequence[Any]:
    try:
        answer = channel.receive()
    except EOFError:
        raise RuntimeError(
            "a worker process ended without an answer (was it out of memory?); engine='loop' works "
            "in one process"
        ) from None
    if isinstance(answer, Exception):
        raise answer
    assert isinstance(answer, Sequence)
    return answer


def can_fork() -> bool:
    """Whether this system has all that workers need."""
    return sys.platform.startswith("linux")

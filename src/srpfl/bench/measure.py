"""Two ways to do the same local work, in turns, until the ratio is known with its spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from srpfl.bench.plain import PlainEngine
from srpfl.bench.settings import BenchCase
from srpfl.engine import make_engine
from srpfl.engine.base import Engine, Job
from srpfl.errors import SrpflError

LOSSES_DIFFER = 0.1  # relative: the plain loop draws its own order and crops


@dataclass(frozen=True)
class Timing:
    """Seconds of each repeat, ours and theirs side by side."""

    setting: str
    engine: str
    threads: int  # at which the plain loop was fastest
    start_up: float  # of our engine: its first round, over that of a later one
    ours: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    losses: tuple[float, float] = (0.0, 0.0)

    @property
    def ratios(self) -> list[float]:
        return sorted(b / a for a, b in zip(self.ours, self.plain, strict=True))

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)


def compare(
    name: str,
    case: BenchCase,
    *,
    repeats: int = 5,
    engine: str = "auto",
    watch: Callable[[str], None] = lambda _: None,
) -> Timing:
    """One round of local work, by our engine and by the plain loop, in turns."""
    torch.manual_seed(0)
    data, model = case.data(), case.model()
    jobs = [_job(case, model, number) for number in range(repeats + 1)]
    ours, plain = make_engine(engine, model, data), PlainEngine(model, data)
    try:
        watch(f"{name}: warming up")
        first, ours_loss = _timed(ours, jobs[0])
        threads, plain_loss = _best_threads(plain, jobs[0])
        if abs(ours_loss - plain_loss) > LOSSES_DIFFER * max(ours_loss, plain_loss, 0.1):
            raise SrpflError(
                f"the two do not do the same work: losses {ours_loss:.3f} and {plain_loss:.3f}"
            )
        mine: list[float] = []
        theirs: list[float] = []
        for number, job in enumerate(jobs[1:], start=1):
            watch(f"{name}: {number} of {repeats}")
            mine.append(_timed(ours, job)[0])
            with _threads(threads):
                theirs.append(_timed(plain, job)[0])
    finally:
        if hasattr(ours, "close"):
            ours.close()
    start_up = max(0.0, first - statistics.median(mine))
    losses = (ours_loss, plain_loss)
    return Timing(name, type(ours).__name__, threads, start_up, mine, theirs, losses)


def _job(case: BenchCase, model: torch.nn.Module, number: int) -> Job:
    parts, plans = case.algorithm.split(model), case.algorithm.plans(model)
    clients = case.clients
    personal = [parts.personal] * clients
    return Job(0, number, "train", range(clients), parts.shared, personal, plans)


def _timed(engine: Engine, job: Job) -> tuple[float, float]:
    start = time.perf_counter()
    [answers] = engine.train([job])
    return time.perf_counter() - start, statistics.fmean(answer.loss for answer in answers)


def _best_threads(engine: Engine, job: Job) -> tuple[int, float]:
    """The number of threads at which the plain loop is fastest, and its loss."""
    tried: dict[int, float] = {}
    loss = 0.0
    most = torch.get_num_threads()
    for threads in sorted({1, 2, most} & set(range(1, most + 1))):
        with _threads(threads):
            tried[threads], loss = _timed(engine, job)
    return min(tried, key=lambda threads: tried[threads]), loss


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)

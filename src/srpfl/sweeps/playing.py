"""Playing a sweep: what is missing is played, what is begun goes on, what is done is left alone."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Literal

from srpfl.engine.workers import cores
from srpfl.errors import ConfigError, unknown, whole
from srpfl.options.methods import METHODS
from srpfl.sweeps.plan import Options, Planned, planned, read_study
from srpfl.sweeps.result import Row, Sweep
from srpfl.sweeps.work import Item, end_with, work

On = Literal["processes", "turn", "ray"]
ON = ("processes", "turn", "ray")
DEATHS = 3  # of workers at one share, until it is given up
DIED = "its worker died each time that it was played: is there memory enough?"

Watch = Callable[[Sequence[Planned]], None]  # is called again and again while runs are played
Outcome = tuple[Sequence[Planned], Sequence[str | None]]  # a share, and what went wrong


def sweep(
    study: str | Path | None = None,
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    runs: Sequence[Options] = (),
    common: Options | None = None,
    out: str | Path | None = None,
    on: On = "processes",
    workers: int | None = None,
    together: int = 1,
    watch: Watch | None = None,
) -> Sweep:
    """Play many runs, each in a folder of its own, and return what came of them.

    The runs are given by options of ``srpfl run``: each of ``runs`` with each combination of the
    ``grid``, and what all have in ``common``; or by a TOML file with these parts. They are played
    on local ``"processes"`` (as many as there are cores, unless ``workers`` says), in ``"turn"`` in
    this process, or on ``"ray"``. ``together`` runs of one algorithm share a worker and its device.
    Called again, it plays what is missing and continues what was interrupted.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = sweep(
    ...         grid={"method": ["fedavg", "fedrep"]},
    ...         common={"clients": 2, "rounds": 1, "model": "mlp"}, out=folder, on="turn",
    ...     )
    ...     [row.state for row in done.rows], len(done.compare().rows)
    (['done', 'done'], 2)
    """
    if on not in ON:
        raise unknown("place for a sweep", on, ON)
    if study is not None:
        told = read_study(Path(study))
        grid, runs = {**told.get("grid", {}), **(grid or {})}, [*told.get("runs", []), *runs]
        common, out = {**told.get("common", {}), **(common or {})}, out or told.get("out")
    if out is None:
        raise ConfigError("a sweep needs a folder for its runs: out='DIR'")
    for name, count in (("workers", workers), ("together", together)):
        if count is not None and whole(name, count) < 1:
            raise ConfigError(f"{name} must be at least 1, not {count}")
    plan = planned(Path(out), grid=grid, runs=runs, common=common)
    states = {run.folder: run.state() for run in plan}
    errors: dict[Path, str] = {}
    missing = [run for run in plan if states[run.folder] in ("begun", "waiting")]
    shares = _shares(missing, together)
    play = {"processes": _on_processes, "turn": _in_turn, "ray": _on_ray}[on]
    for share, found in play(shares, workers or cores(), lambda: watch(plan) if watch else None):
        for run, error in zip(share, found, strict=True):
            states[run.folder] = run.state() if error is None else "failed"
            if error is not None:
                errors[run.folder] = error
                states[run.folder] = "diverged" if run.state() == "diverged" else "failed"
    rows = [Row(r.folder, r.varied, states[r.folder], errors.get(r.folder)) for r in plan]
    return Sweep(Path(out), rows)


def _shares(missing: Sequence[Planned], together: int) -> list[list[Planned]]:
    """What one worker plays at a time: runs whose clients do the same work, where several share."""
    groups: dict[Any, list[Planned]] = {}
    for run in missing:
        kind = METHODS[run.config.method].algorithm if run.config.method in METHODS else None
        groups.setdefault((kind, run.config.engine, run.config.device), []).append(run)
    if together == 1:
        return [[run] for run in missing]
    return [
        group[start : start + together]
        for group in groups.values()
        for start in range(0, len(group), together)
    ]


def _item(share: Sequence[Planned]) -> Item:
    return [(str(run.folder), dataclasses.asdict(run.config)) for run in share]


def _in_turn(
    shares: Sequence[list[Planned]], workers: int, look: Callable[[], None]
) -> Iterator[Outcome]:
    for share in shares:
        look()
        yield share, work(_item(share))


def _on_processes(
    shares: Sequence[list[Planned]], workers: int, look: Callable[[], None]
) -> Iterator[Outcome]:
    """A worker that dies takes the others' pool with it: what was not finished goes on in a new
    one, and a share at which workers die again and again is given up."""
    left = dict(enumerate(shares))
    deaths: Counter[int] = Counter()
    while left:
        running: set[int] = set()
        try:
            for number, found in _pooled(left, min(workers, len(left)), look, running):
                yield left.pop(number), found
        except BrokenProcessPool:
            deaths.update(running)
            for number in [n for n in running if deaths[n] >= DEATHS and n in left]:
                share = left.pop(number)
                yield share, [DIED] * len(share)


def _pooled(
    left: Mapping[int, list[Planned]], workers: int, look: Callable[[], None], running: set[int]
) -> Iterator[tuple[int, list[str | None]]]:
    """Shares on a pool of processes, no more at a time than there are workers."""
    waiting = list(left)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        workers, context, initializer=end_with, initargs=(os.getpid(),)
    ) as pool:
        futures: dict[Future[list[str | None]], int] = {}
        while waiting or futures:
            while waiting and len(futures) < workers:
                number = waiting.pop(0)
                futures[pool.submit(work, _item(left[number]))] = number
                running.add(number)
            done, _ = wait(futures, timeout=1.0, return_when=FIRST_COMPLETED)
            look()
            for future in done:
                found = future.result()
                number = futures.pop(future)
                running.discard(number)
                yield number, found


def _on_ray(
    shares: Sequence[list[Planned]], workers: int, look: Callable[[], None]
) -> Iterator[Outcome]:
    from srpfl.engine.cluster import connected

    ray = connected(workers)
    gpu = any(run.config.device not in ("cpu", "auto") for share in shares for run in share)
    task = ray.remote(num_cpus=0 if gpu else 1, num_gpus=1 if gpu else 0, max_retries=DEATHS)(work)
    futures = {task.remote(_item(share)): share for share in shares}
    while futures:
        done, _ = ray.wait(list(futures), timeout=1.0)
        look()
        for future in done:
            share = futures.pop(future)
            try:
                found = ray.get(future)
            except ray.exceptions.RayError:
                found = [DIED] * len(share)
            yield share, found

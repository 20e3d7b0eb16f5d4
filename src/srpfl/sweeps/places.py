"""Where the runs of a sweep are played: in this process, on local ones, or on a Ray cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple

from srpfl.engine.workers import cores
from srpfl.errors import ConfigError
from srpfl.sweeps.plan import Planned
from srpfl.sweeps.work import Item, end_with, work

DEATHS = 3  # of workers at one share, until it is given up
DIED = "its worker died each time that it was played: is there memory enough?"
GLANCE = 1.0  # seconds from one look at what is played to the next

Share = list[Planned]  # what one worker plays at a time
Outcome = tuple[Share, Sequence[str | None]]  # and what went wrong with each


class Orders(NamedTuple):
    """What holds wherever runs are played."""

    workers: int | None  # at a time; None: as many as there is room for
    look: Callable[[], None]  # is called about once a second
    more: Callable[[], bool]  # whether runs may still be begun


def in_turn(shares: Sequence[Share], orders: Orders) -> Iterator[Outcome]:
    """One after another, in this process."""
    for share in shares:
        if not orders.more():
            return
        with _looking(orders.look):
            found = work(_item(share))
        yield share, found


@contextlib.contextmanager
def _looking(look: Callable[[], None]) -> Iterator[None]:
    """Look while this thread is busy."""
    over = threading.Event()

    def again() -> None:
        while not over.wait(GLANCE):
            look()

    look()
    beside = threading.Thread(target=again, daemon=True)
    beside.start()
    try:
        yield
    finally:
        over.set()
        beside.join()


def on_processes(shares: Sequence[Share], orders: Orders) -> Iterator[Outcome]:
    """A worker that dies takes the others' pool with it: what was not finished goes on in a new
    one, and a share at which workers die again and again is given up."""
    left = dict(enumerate(shares))
    deaths: Counter[int] = Counter()
    while left and orders.more():
        running: set[int] = set()
        try:
            for number, found in _pooled(left, orders, running):
                yield left.pop(number), found
        except BrokenProcessPool:
            deaths.update(running)
            for number in [n for n in running if deaths[n] >= DEATHS and n in left]:
                share = left.pop(number)
                yield share, [DIED] * len(share)


def _pooled(
    left: Mapping[int, Share], orders: Orders, running: set[int]
) -> Iterator[tuple[int, list[str | None]]]:
    """Shares on a pool of processes, no more at a time than there are workers."""
    waiting = list(left)
    workers = min(orders.workers or cores(), len(left))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        workers, context, initializer=end_with, initargs=(os.getpid(),)
    ) as pool:
        futures: dict[Future[list[str | None]], int] = {}
        while True:
            while waiting and len(futures) < workers and orders.more():
                number = waiting.pop(0)
                with _without_script(left[number]):
                    futures[pool.submit(work, _item(left[number]))] = number
                running.add(number)
            if not futures:
                return
            done, _ = wait(futures, timeout=GLANCE, return_when=FIRST_COMPLETED)
            orders.look()
            for future in done:
                found = future.result()
                number = futures.pop(future)
                running.discard(number)
                yield number, found


@contextlib.contextmanager
def _without_script(share: Share) -> Iterator[None]:
    """Processes that are started here do not read the user's script again, as Python would have
    them: where it has no ``if __name__ == "__main__":`` they would all begin the sweep again. Only
    a class of the script's own is found there."""
    options = [value for run in share for value in vars(run.config).values()]
    if any(isinstance(value, str) and value.startswith("__main__:") for value in options):
        yield
        return
    script = vars(sys.modules["__main__"])
    held = {name: script[name] for name in list(script) if name in ("__spec__", "__file__")}
    script.update(dict.fromkeys(held))
    try:
        yield
    finally:
        script.update(held)


def on_ray(shares: Sequence[Share], orders: Orders) -> Iterator[Outcome]:
    """As many at a time as the cluster has GPUs, or cores. Its nodes must see the runs' folders."""
    from srpfl.engine.cluster import connected, disconnect

    ray = connected(orders.workers or cores())
    needs = _needs(ray, shares)
    [(what, _)] = needs.items()
    room = orders.workers or max(1, int(ray.cluster_resources()[what]))
    each = {f"num_{name.lower()}s": needs.get(name, 0) for name in ("CPU", "GPU")}
    task = ray.remote(**each, max_retries=DEATHS)(work)
    waiting, futures = list(shares), dict[Any, Share]()
    try:
        while True:
            while waiting and len(futures) < room and orders.more():
                share = waiting.pop(0)
                futures[task.remote(_item(share))] = share
            if not futures:
                return
            done, _ = ray.wait(list(futures), timeout=GLANCE)
            orders.look()
            for future in done:
                share = futures.pop(future)
                try:
                    found = ray.get(future)
                except ray.exceptions.RayError:
                    found = [DIED] * len(share)
                yield share, found
    finally:
        disconnect()


def _needs(ray: Any, shares: Sequence[Share]) -> dict[str, int]:
    """What a share takes of a cluster: a GPU where there are some and the runs may use them."""
    devices = {run.config.device for share in shares for run in share}
    if ray.cluster_resources().get("GPU", 0) and devices != {"cpu"}:
        return {"GPU": 1}
    if devices <= {"cpu", "auto"}:
        return {"CPU": 1}
    raise ConfigError("the Ray cluster has no GPU: take device='cpu', or add a node with one")


def _item(share: Share) -> Item:
    return [(str(run.folder.absolute()), dataclasses.asdict(run.config)) for run in share]

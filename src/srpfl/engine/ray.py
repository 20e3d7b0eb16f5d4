"""A Ray cluster as an engine: one of our engines per actor, on a GPU or a core of its own.

What the server sent goes into Ray's object store once per round and from there to each node; a
client's own part goes to the actor that has its work. An answer comes whole or not at all, so what
an actor had when it or its node died is done again by another, and nothing counts twice. Where
nobody looks at single answers, an actor may send the mean of its own.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from srpfl.core.processes import Failure
from srpfl.data.base import Federated
from srpfl.data.joined import joined
from srpfl.engine.base import Engine, Job, Local, Score
from srpfl.engine.cluster import connected, disconnect
from srpfl.engine.messages import parted, reduced
from srpfl.engine.ray_means import FAN, WORTH, Means, put_back, put_together, taken_out
from srpfl.engine.workers import Kind, cores, keep_memory, parts_of, spread
from srpfl.errors import SrpflError, whole

ACTORS = "SRPFL_RAY_ACTORS"  # in the environment: how many, in place of one per GPU or core
# In the environment, if not empty: actors average. Sums then follow who had whose work, so the last
# digits of a run may differ from those of the same run another time.
AVERAGE = "SRPFL_RAY_AVERAGE"
DEATHS = 3  # of actors at the same work, until it is given up
PATIENCE = 60.0  # seconds for the first actor to start
LONGER = 10.0  # and for the others after it

Packed = tuple[bytes, list[int], Any]  # text, sizes of tensors, and their bytes one after another


def gpus() -> float:
    """How many GPUs the cluster has."""
    return float(connected(cores()).cluster_resources().get("GPU", 0))


def part_of_a_gpu(there: float, actors: int) -> float:
    """What an actor asks for, where each must fit on one GPU. Ray counts in ten thousandths, and
    may round up: six sixths would be more than a GPU.

    >>> part_of_a_gpu(4, 4), part_of_a_gpu(1, 2), part_of_a_gpu(2, 3), part_of_a_gpu(1, 6)
    (1.0, 0.5, 0.5, 0.1666)
    """
    if not there:  # that Ray knows of: the device was named
        return 0.0
    on_one = math.ceil(actors / there)
    return 10_000 // on_one / 10_000


class RayEngine:
    """Spreads a cohort over the actors of a cluster."""

    def __init__(
        self,
        make: Callable[[], Engine],
        data: Federated,
        *,
        actors: int | None = None,
        on_gpus: bool = False,
    ) -> None:
        self.ray = connected(cores())
        self.data, self.on_gpus = joined(data), on_gpus
        self.count = actors or self._usual()
        self._make = self.ray.put(make)  # with the model and the data, once for each node
        self._actors: list[Any] = []
        self._coming: dict[Any, Any] = {}  # actors that have not started yet, by their first word
        self._said = False

    def train(self, jobs: Sequence[Job]) -> list[list[Local]]:
        if not os.environ.get(AVERAGE):
            jobs = [replace(job, mean_by=None) for job in jobs]
        return self._spread("train", jobs)

    def test(self, jobs: Sequence[Job]) -> list[list[Score]]:
        return self._spread("test", jobs)

    def close(self) -> None:
        """End the actors, and the cluster if it is our own."""
        while self._actors or self._coming:
            self._end(self._actors.pop() if self._actors else self._coming.popitem()[1])
        disconnect()

    def _usual(self) -> int:
        told = os.environ.get(ACTORS)
        if told is not None:
            return max(1, whole(ACTORS, int(told) if told.isdigit() else told))
        there = self.ray.cluster_resources().get("GPU" if self.on_gpus else "CPU", 1)
        return max(1, int(there))

    def _spread(self, kind: Kind, jobs: Sequence[Job]) -> list[list[Any]]:
        try:
            for _ in range(DEATHS):
                answers, refs = self._answers(kind, jobs)
                try:
                    means = self._put_together(refs)
                except self.ray.exceptions.RayError as error:  # a mean was lost with its node
                    self._say(error)
                    lost = error
                    continue
                return [put_back(n, found, means) for n, found in enumerate(answers)]
            raise _dying("while they averaged", lost)
        except BaseException:
            self.close()
            raise

    def _answers(self, kind: Kind, jobs: Sequence[Job]) -> tuple[list[list[Any]], list[Any]]:
        """All answers, and where the means are that were taken out of them."""
        places = [(n, place) for n, job in enumerate(jobs) for place in range(len(job.clients))]
        numbers = [self.data.number(jobs[n].run, jobs[n].clients[p]) for n, p in places]
        sizes = [self.data.size(number) for number in numbers]
        self._fill()
        sent = self.ray.put(packed([(job.shared, job.server) for job in jobs]))
        shares = [[places[i] for i in share] for share in spread(sizes, len(self._actors))]
        shares = [share for share in shares if share]
        # Where means are put together in a tree, also those of few answers save the last process
        # some of its work.
        least = WORTH if len(shares) <= FAN else 1
        # By number of the share, what an actor is told.
        work = {
            number: (kind, sent, sorted({n for n, _ in share}), packed(_light(jobs, share)), least)
            for number, share in enumerate(shares)
        }
        answers: dict[tuple[int, int], Any] = {}
        means: dict[int, Any] = {}
        for number, found, mean in self._done(work):
            flat = [each for part in found for each in part]
            answers |= dict(zip(shares[number], flat, strict=True))
            means[number] = mean
        whole = [[answers[n, p] for p in range(len(job.clients))] for n, job in enumerate(jobs)]
        averaged = kind == "train" and any(job.mean_by for job in jobs)
        return whole, [means[number] for number in sorted(means)] if averaged else []

    def _put_together(self, refs: list[Any]) -> Means:
        """The means of all, of which few come here."""
        while len(refs) > FAN:
            groups = [refs[first : first + FAN] for first in range(0, len(refs), FAN)]
            refs = [
                self._actors[n % len(self._actors)].put_together.remote(*group)
                for n, group in enumerate(groups)
            ]
        return put_together([unpacked(each) for each in self.ray.get(refs)])

    def _done(self, work: Mapping[int, Any]) -> Any:
        """The answer to each share, in order of arrival, and where its means are."""
        busy: dict[Any, tuple[int, Any, Any]] = {}

        def begin(number: int, actor: Any) -> None:
            answer, mean = actor.work.options(num_returns=2).remote(*work[number])
            busy[answer] = number, actor, mean

        for number in work:
            begin(number, self._actors[number])
        deaths = dict.fromkeys(work, 0)
        while busy:
            [first], _ = self.ray.wait(list(busy), num_returns=1)
            number, actor, mean = busy.pop(first)
            try:
                answer = unpacked(self.ray.get(first))
            except self.ray.exceptions.RayError as error:
                deaths[number] += 1
                self._lost(actor, error, deaths[number])
                begin(number, self._actors[number % len(self._actors)])
                continue
            if isinstance(answer, Failure):
                answer.raise_here()
            yield number, answer, mean

    def _lost(self, actor: Any, error: Exception, deaths: int) -> None:
        """An actor or its node has died: others take its place."""
        if actor in self._actors:
            self._actors.remove(actor)
            self._end(actor)
        if deaths >= DEATHS:
            raise _dying("at the same work", error)
        self._say(error)
        if not self._actors:
            self._fill()

    def _say(self, error: Exception) -> None:
        if not self._said:
            text = f"a Ray actor was lost ({type(error).__name__}): another does its clients again"
            print(f"srpfl: {text}", file=sys.stderr)
            self._said = True

    def _fill(self) -> None:
        """Ask for actors where some are missing, and take those that have started into service.
        Nobody waits for one that the cluster has no room for while others can do the work."""
        missing = self.count - len(self._actors) - len(self._coming)
        new = [self._start() for _ in range(missing)]
        self._coming |= {actor.ready.remote(): actor for actor in new}
        if not self._coming:
            return
        fresh = not self._actors
        if fresh:
            self.ray.wait(list(self._coming), num_returns=1, timeout=PATIENCE)
        ready, _ = self.ray.wait(
            list(self._coming), num_returns=len(self._coming), timeout=LONGER if fresh else 0
        )
        what = "GPU" if self.on_gpus else "core"
        why = f"has no free {what} for an actor: stop what else runs on it, or add a node"
        for each in ready:
            actor = self._coming.pop(each)
            try:
                self.ray.get(each)
                self._actors.append(actor)
            except self.ray.exceptions.RayError as error:
                reason = [line for line in str(error).splitlines() if line.strip()][-1]
                why = f"cannot start an actor: {reason.strip()}"
        if not self._actors:
            self.close()
            raise SrpflError(f"the Ray cluster {why}")

    def _start(self) -> Any:
        each = part_of_a_gpu(gpus(), self.count) if self.on_gpus else 0.0
        needs = {"num_gpus": each, "num_cpus": 0} if self.on_gpus else {"num_cpus": 1}
        return self.ray.remote(**needs, max_restarts=0)(_Actor).remote(self._make)

    def _end(self, actor: Any) -> None:
        with contextlib.suppress(Exception):  # whatever Ray says of one that is gone
            self.ray.kill(actor)


class _Actor:
    """An engine in a process of Ray's."""

    def __init__(self, make: Callable[[], Engine]) -> None:
        import torch

        torch.set_num_threads(1)
        keep_memory()
        self._engine = make()

    def ready(self) -> int:
        return os.getpid()

    def work(
        self, kind: Kind, sent: Packed, numbers: Sequence[int], parts: Packed, least: int
    ) -> tuple[Packed, Packed]:
        """Do a share of some jobs, whose common parts come apart: the answers, and what of them is
        averaged."""
        means: Means = {}
        found: Any
        try:
            common, light = unpacked(sent), unpacked(parts)
            jobs = [
                replace(job, shared=common[n][0], server=common[n][1])
                for n, job in zip(numbers, light, strict=True)
            ]
            if kind == "test":
                found = self._engine.test(jobs)
            else:
                found = self._engine.train(jobs)
                for place, (n, job) in enumerate(zip(numbers, jobs, strict=True)):
                    found[place], mean = taken_out(n, job, found[place], least)
                    means |= mean
        except Exception as error:
            found = Failure(error)
        return packed(found), packed(means)

    def put_together(self, *found: Packed) -> Packed:
        return packed(put_together([unpacked(each) for each in found]))


def _dying(when: str, error: Exception) -> SrpflError:
    return SrpflError(
        f"Ray's actors died {DEATHS} times {when} ({type(error).__name__}): is there memory enough "
        "on the nodes?"
    )


def _light(jobs: Sequence[Job], share: Sequence[tuple[int, int]]) -> list[Job]:
    """A share of the jobs, in their order, without what all have in common."""
    return [replace(job, shared={}, server={}) for job in parts_of(jobs, sorted(share))]


def packed(message: Any) -> Packed:
    """A message for another process: Ray stores one array without a copy, but not many tensors."""
    text, arrays = parted(message, _packer())
    sizes = [array.nbytes for array in arrays]
    whole = np.concatenate([np.frombuffer(a, dtype=np.uint8) for a in arrays]) if arrays else None
    return text, sizes, whole


def _packer() -> type[pickle.Pickler]:
    """Ray's pickler, which takes classes of the user's own script along, with tensors our way."""
    from ray.cloudpickle import Pickler

    class Packer(Pickler):
        def reducer_override(self, obj: Any) -> Any:
            found = reduced(obj)
            if found is NotImplemented:
                found = super().reducer_override(obj)  # type: ignore[no-untyped-call]
            return found

    return Packer


def unpacked(message: Packed) -> Any:
    """The inverse of :func:`packed`; tensors are copies, so that they can be written to."""
    text, sizes, whole = message
    ends = np.cumsum(sizes).tolist()
    buffers = [whole[e - s : e].copy() for s, e in zip(sizes, ends, strict=True)] if sizes else []
    return pickle.loads(text, buffers=buffers)

"""Ray beside worker processes, and how far it scales: python benchmarks/cluster.py [--json FILE]

Both have two processes and do the same rounds of the paper's LeNet in turns, so that what else the
machine does meets both. Then come the costs of Ray alone: rounds in which nobody computes anything,
with few and with many answers, one by one and as the mean of each actor's; the object store;
averaging, also by an actor. From these and from the time of a round on a GPU
(results/benchmarks/h200.json) follows how long a round takes on more GPUs, if each process has a
network of 25 Gbit/s.

    python benchmarks/cluster.py --json results/scale/cluster.json
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from srpfl.bench import SETTINGS
from srpfl.core.means import Weighting, weighted_mean
from srpfl.core.slots import Reply
from srpfl.engine import make_engine
from srpfl.engine.base import Job, Local, Score
from srpfl.engine.ray import RayEngine, packed, unpacked
from srpfl.engine.ray_means import FAN, WORTH, taken_out
from srpfl.engine.workers import WorkersEngine

ROOT = Path(__file__).parents[1]
COUNTS = (2, 100, 400)  # answers in rounds without work
GPUS = (1, 8, 64, 512)
PARTICIPANTS = (100, 1000, 10_000)
NETWORK = 25e9 / 8  # bytes per second that reach a process: assumed
CASE = replace(SETTINGS["lenet"], clients=16)


class Echo:
    """An engine that answers with what it was sent, at once."""

    def train(self, jobs: Sequence[Job]) -> list[list[Local]]:
        return [[self._answer(job, place) for place in range(len(job.clients))] for job in jobs]

    def test(self, jobs: Sequence[Job]) -> list[list[Score]]:
        return [[Score(client, (0.0,), 1.0) for client in job.clients] for job in jobs]

    def _answer(self, job: Job, place: int) -> Local:
        shared = {name: value.clone() for name, value in job.shared.items()}
        return Local(job.clients[place], Reply(shared, job.personal[place]), 0.0, 1)


def job_of(clients: int, number: int, mean_by: Weighting | None = None) -> Job:
    model = CASE.model()
    parts, plans = CASE.algorithm.split(model), CASE.algorithm.plans(model)
    who = [client % CASE.clients for client in range(clients)]
    personal = [parts.personal] * clients
    return Job(0, number, "train", who, parts.shared, personal, plans, mean_by=mean_by)


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Averaging(NamedTuple):
    """An engine that is told that nobody looks at single answers."""

    engine: Any

    def train(self, jobs: Sequence[Job]) -> list[list[Local]]:
        found: list[list[Local]] = self.engine.train(
            [replace(job, mean_by="uniform") for job in jobs]
        )
        return found


class Times(NamedTuple):
    wall: float
    cpu: float  # of this process and of those that compute, not of Ray's own


def in_turns(engines: dict[str, Any], jobs: Sequence[Job]) -> dict[str, list[Times]]:
    """Seconds of each job by each engine; the first two are to warm up."""
    told: dict[str, list[Times]] = {name: [] for name in engines}
    for job in jobs:
        for name, engine in engines.items():
            before = busy(engine)
            wall = seconds(partial(engine.train, [job]))
            told[name].append(Times(wall, busy(engine) - before))
    return {name: times[2:] for name, times in told.items()}


def busy(engine: Any) -> float:
    """CPU seconds so far of this process and of an engine's."""
    return time.process_time() + sum(map(cpu_of, processes(engine)))


def processes(engine: Any) -> list[int]:
    if isinstance(engine, Averaging):
        return processes(engine.engine)
    if isinstance(engine, WorkersEngine):
        return [int(worker.process.pid or 0) for worker in engine._workers]
    found: list[int] = engine.ray.get([actor.ready.remote() for actor in engine._actors])
    return found


def cpu_of(process: int) -> float:
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def against_workers(repeats: int) -> dict[str, Any]:
    data, model = CASE.data(), CASE.model()
    workers = make_engine("workers", model, data, device="cpu")
    workers.train([job_of(4, 0)])  # forked before there is anything of Ray in this process
    engines = {"workers": workers, "ray": make_engine("ray", model, data, device="cpu")}
    engines["ray"].train([job_of(4, 0)])  # so that all processes are there
    jobs = [job_of(CASE.clients, number) for number in range(repeats + 2)]
    try:
        times = in_turns(engines, jobs)
    finally:
        close(engines)
    pairs = list(zip(times["workers"], times["ray"], strict=True))
    ratios = sorted(b.wall / a.wall for a, b in pairs)
    return {
        "clients": CASE.clients,
        "ray_over_workers": statistics.median(ratios),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "ray_over_workers_cpu": sum(b.cpu for _, b in pairs) / sum(a.cpu for a, _ in pairs),
        "workers_s": statistics.median(each.wall for each in times["workers"]),
        "ray_s": statistics.median(each.wall for each in times["ray"]),
    }


def without_work(repeats: int) -> dict[str, Any]:
    """What a round costs apart from its work: so much, and so much for each answer."""
    data = CASE.data()
    workers = WorkersEngine(Echo, data, workers=2)
    workers.train([job_of(2, 0)])
    engines: dict[str, Any] = {"workers": workers, "ray": RayEngine(Echo, data, actors=2)}
    engines["ray"].train([job_of(2, 0)])
    engines["ray, averaged"] = Averaging(engines["ray"])
    found: dict[str, dict[int, float]] = {name: {} for name in engines}
    try:
        for count in COUNTS:
            times = in_turns(engines, [job_of(count, number) for number in range(repeats + 2)])
            for name, each in times.items():
                found[name][count] = min(one.wall for one in each)
    finally:
        close(engines)
    return {name: line(rounds) for name, rounds in found.items()}


def line(rounds: dict[int, float]) -> dict[str, Any]:
    slope, start = np.polyfit(list(rounds), list(rounds.values()), 1)
    return {
        "per_round_ms": 1000 * max(float(start), min(rounds.values())),
        "per_client_ms": 1000 * float(slope),
        "seconds_by_answers": rounds,
    }


def close(engines: dict[str, Any]) -> None:
    for engine in engines.values():
        if not isinstance(engine, Averaging):
            engine.close()


def parts_of_the_cost() -> dict[str, float]:
    """Bytes of an answer; bytes per second into and out of the object store; of averaging; and how
    long an actor takes to put several means together."""
    import ray

    from srpfl.engine.cluster import connected, disconnect

    shared = job_of(1, 0).shared
    size = sum(value.numel() * value.element_size() for value in shared.values())
    block = np.zeros(1 << 27, dtype=np.uint8)
    connected(1)
    put = min(seconds(lambda: ray.put(block)) for _ in range(5))
    there = ray.put(block)
    get = min(seconds(lambda: ray.get(there).copy()) for _ in range(5))
    disconnect()
    answers = [{name: value.clone() for name, value in shared.items()} for _ in range(200)]
    mean = min(seconds(lambda: weighted_mean(answers, [1.0] * 200)) for _ in range(5))
    share, means = taken_out(0, job_of(200, 0, "uniform"), Echo().train([job_of(200, 0)])[0], WORTH)
    light = min(seconds(lambda: unpacked(packed(share))) for _ in range(5)) / 200
    engine = RayEngine(Echo, CASE.data(), actors=1)
    engine.train([job_of(1, 0)])
    [actor] = engine._actors
    several = [ray.put(packed(means)) for _ in range(FAN)]
    merge = min(seconds(lambda: ray.wait([actor.put_together.remote(*several)])) for _ in range(20))
    engine.close()
    return {
        "bytes_per_answer": size,
        "bytes_per_mean": 2 * size,  # in double precision
        "seconds_beside_a_mean": light,  # for an answer whose weights are in its actor's mean
        "store_put_bytes_per_s": block.nbytes / put,
        "store_get_bytes_per_s": block.nbytes / get,
        "average_bytes_per_s": 200 * size / mean,
        "means_put_together": FAN,
        "seconds_to_put_together": merge,
    }


def scaled(costs: dict[str, float], ray: dict[str, float], averaging: bool) -> dict[str, Any]:
    """Seconds of a round by participants and GPUs, from what was measured.

    A GPU's share takes what a cohort of that size takes on an H200 (between the sizes measured
    there, on a straight line; less than the smallest takes as long as the smallest). Answers arrive
    at the process that plays the rounds while others compute: so a round takes as long as the
    longer of the two, and the costs of any round. One by one each answer is received and averaged
    there. Otherwise each GPU's actor averages its share, as fast as a core here does, actors put
    these means together in a tree, each step after the last, and few are received.
    """
    told = json.loads((ROOT / "results" / "benchmarks" / "h200.json").read_text())
    known = {n: told[f"fedrep round of {n}, tf32"]["median"] for n in (10, 100, 1000)}
    size = costs["bytes_per_answer"]
    average = size / costs["average_bytes_per_s"]
    each = max(size / NETWORK, ray["per_client_ms"] / 1000) + average
    rows = []
    for participants in PARTICIPANTS:
        alone = work(known, participants)
        for gpus in GPUS:
            share = participants / gpus
            computing, waiting = work(known, share), participants * each
            tree = 0.0
            means = min(gpus, participants)
            if averaging and share >= (WORTH if gpus <= FAN else 0):
                computing += max(share, 1.0) * average
                waiting = participants * costs["seconds_beside_a_mean"]
                while means > FAN:
                    tree += FAN * 2 * size / NETWORK + costs["seconds_to_put_together"]
                    means = math.ceil(means / FAN)
                tree += means * 2 * each
            if gpus == 1:
                computing, waiting, tree = alone, 0.0, 0.0
            fixed = ray["per_round_ms"] / 1000 if gpus > 1 else 0.0
            round_s = max(computing, waiting) + tree + fixed
            rows.append(
                {
                    "participants": participants,
                    "gpus": gpus,
                    "computing_s": computing,
                    "receiving_s": waiting + tree,
                    "round_s": round_s,
                    "speed_up": alone / round_s,
                }
            )
    return {"seconds_per_answer": each, "rows": rows}


def work(known: dict[int, float], clients: float) -> float:
    sizes, times = list(known), list(known.values())
    if clients <= sizes[-1]:
        return float(np.interp(clients, sizes, times))
    return times[-1] * clients / sizes[-1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["SRPFL_RAY_ACTORS"] = "2"
    os.environ["SRPFL_RAY_AVERAGE"] = "1"  # where a job allows it
    os.environ.pop("RAY_ADDRESS", None)
    against = against_workers(asked.repeats)
    empty = without_work(asked.repeats)
    costs = parts_of_the_cost()
    result = {
        "cores": os.cpu_count(),
        "lenet rounds": against,
        "rounds without work": empty,
        "costs": costs,
        "network_bytes_per_s_assumed": NETWORK,
        "scaled": scaled(costs, empty["ray"], averaging=False),
        "scaled, averaged": scaled(costs, empty["ray"], averaging=True),
    }
    text = json.dumps(result, indent=1)
    print(text)
    if asked.json:
        asked.json.write_text(text + "\n")


if __name__ == "__main__":
    main()

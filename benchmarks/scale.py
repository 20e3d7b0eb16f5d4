"""Many clients that all have state: python benchmarks/scale.py FOLDER [--population N] ...

Every client takes part once, 1,000 in a round, so that each has trained parts of its own; then come
the rounds that are measured, with 1,000 clients drawn at random. A call plays for so many minutes
at most and the next one goes on, so that resuming is measured too; the last one writes the result.

    python benchmarks/scale.py runs/million --population 1000000 --json results/scale/million.json
    python benchmarks/scale.py runs/small --population 10000 --json results/scale/small.json
    python benchmarks/scale.py runs/bodies --population 100000 --algorithm LGFedAvg \\
        --json results/scale/bodies.json
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import srpfl
from srpfl.data.base import Samples, Transform
from srpfl.participation.base import Call, uniform
from srpfl.runs.folder import RunFolder

POOL, TRAIN, TEST = 50_000, 10, 5


class TimeIsUp(Exception):
    """This call has played for as long as it may."""


@dataclass(frozen=True)
class Slices:
    """Clients with a few samples each out of one pool, at a place that their number gives."""

    clients: int
    classes: int = 10
    transform: Transform = Transform()
    name: str = "slices"
    pool: Samples = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(0)
        centres = rng.normal(size=(self.classes, 64))
        y = rng.integers(self.classes, size=POOL + TRAIN)
        x = (centres[y] + rng.normal(size=(len(y), 64))).astype(np.float32)
        object.__setattr__(self, "pool", Samples(x, y.astype(np.int64)))

    def size(self, client: int) -> int:
        return TRAIN

    def train(self, client: int) -> Samples:
        return self._slice(client * 7919, TRAIN)

    def test(self, client: int) -> Samples:
        return self._slice(client * 104729 + 1, TEST)

    def _slice(self, place: int, count: int) -> Samples:
        start = place % POOL
        return Samples(self.pool.x[start : start + count], self.pool.y[start : start + count])


@dataclass(frozen=True, kw_only=True)
class InTurn(srpfl.Everyone):
    """At first everyone once, by number; then at random."""

    sample: int
    first: int  # rounds in which everyone has been asked

    def choose(
        self, memory: Any, call: Call, idle: Any, rng: np.random.Generator
    ) -> tuple[int, ...]:
        if call.draw < self.first:
            return tuple(range(call.draw * self.sample, (call.draw + 1) * self.sample))
        return uniform(call.ask, idle, rng)


class Stopwatch(srpfl.Watcher):
    """Seconds of each round, kept beside the run so that the next call has them too."""

    def __init__(self, file: Path, minutes: float) -> None:
        self.file, self.until = file, time.monotonic() + 60 * minutes
        self.started = time.monotonic()
        self.cpu = self.wall = self.saving = 0.0

    def begin(self, name: str, rounds: int, done: int) -> None:
        self._write({"begun": done, "seconds": time.monotonic() - self.started, "peak": peak()})
        self.cpu, self.wall = time.process_time(), time.perf_counter()

    def round(self, record: Any) -> None:
        cpu, wall = time.process_time(), time.perf_counter()
        told = {"round": record.round, "cpu": cpu - self.cpu, "wall": wall - self.wall}
        self._write({**told, "save": self.saving, "peak": peak()})
        self.cpu, self.wall = time.process_time(), time.perf_counter()
        if time.monotonic() > self.until:
            raise TimeIsUp

    def _write(self, told: dict[str, float]) -> None:
        with self.file.open("a") as file:
            file.write(json.dumps(told) + "\n")


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def play(asked: argparse.Namespace) -> None:
    watch = Stopwatch(asked.folder.with_suffix(".timing"), asked.minutes)
    real = RunFolder.save

    def save(self: RunFolder, *args: Any) -> None:
        started = time.perf_counter()
        real(self, *args)
        watch.saving = time.perf_counter() - started

    RunFolder.save = save  # type: ignore[method-assign]
    first = asked.population // asked.participants
    algorithm = {
        "FedRep": srpfl.FedRep(head_epochs=1, body_epochs=1),
        "LGFedAvg": srpfl.LGFedAvg(epochs=1),
    }[asked.algorithm]
    srpfl.simulate(
        data=Slices(asked.population),
        model=srpfl.models.MLP(64, (64, 32), classes=10),
        algorithm=algorithm,
        participation=InTurn(sample=asked.participants, first=first),
        clock=srpfl.DynamicExponential(),
        rounds=first + asked.rounds,
        evaluate_at=[first + asked.rounds],
        evaluate_share=1000,
        engine="vectorised",
        out=asked.folder,
        resume=(asked.folder / "config.json").exists(),
        watchers=[watch],
    )


def result(asked: argparse.Namespace) -> dict[str, Any]:
    lines = asked.folder.with_suffix(".timing").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    first = asked.population // asked.participants
    measured = [each for each in told if each.get("round", 0) > first + 1]
    resumed = [each for each in told if each.get("begun", 0) > first]
    files = list((asked.folder / "personal").iterdir())
    return {
        "population": asked.population,
        "participants": asked.participants,
        "rounds": len(measured),
        "round_cpu_s": statistics.median(each["cpu"] for each in measured),
        "round_wall_s": statistics.median(each["wall"] for each in measured),
        "checkpoint_s": statistics.median(each["save"] for each in measured),
        "slowest_checkpoint_s": max(each["save"] for each in measured),
        "resume_s": [each["seconds"] for each in resumed],
        "peak_gib": max(each["peak"] for each in told),
        "files": len(files),
        "gib_on_disk": sum(file.stat().st_size for file in files) / 2**30,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--population", type=int, default=1_000_000)
    parser.add_argument("--participants", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--algorithm", choices=["FedRep", "LGFedAvg"], default="FedRep")
    parser.add_argument("--minutes", type=float, default=7.0)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    asked.folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        play(asked)
    except TimeIsUp:
        print("time is up: call this again to go on")
        raise SystemExit(75) from None
    text = json.dumps(result(asked), indent=1)
    print(text)
    if asked.json:
        asked.json.write_text(text + "\n")


if __name__ == "__main__":
    main()

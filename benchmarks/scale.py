"""Many clients that all have state, beside few: python benchmarks/scale.py FOLDER [--json FILE]

Two populations, each in a process of its own, so that memory is its own too. At first everyone
takes part once, 1,000 in a round, so that each has trained parts of its own; this is cut into
pieces of so many minutes: call it again to go on. Then both are started anew, which measures how
long it takes to go on with a run, and play the rounds that are measured, in turns, so that what
else the machine does meets both. To measure again, call it with more rounds.

    python benchmarks/scale.py runs/heads --json results/scale/million.json
    python benchmarks/scale.py runs/bodies --population 100000 --algorithm LGFedAvg \\
        --json results/scale/bodies.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import statistics
import subprocess
import sys
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
WARM = 5  # rounds after a start that are not measured
ALGORITHMS = {
    "FedRep": srpfl.FedRep(head_epochs=1, body_epochs=1),
    "LGFedAvg": srpfl.LGFedAvg(epochs=1),
}


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


class Fill(srpfl.Watcher):
    """Ends a run when everyone has taken part, or when time is up."""

    def __init__(self, first: int, minutes: float) -> None:
        self.first, self.until = first, time.monotonic() + 60 * minutes

    def after(self, run: srpfl.Run) -> bool:
        return len(run.rounds) >= self.first or time.monotonic() > self.until


class Turns(srpfl.Watcher):
    """Tells how long a round and its checkpoint took, and waits to be told to go on."""

    def __init__(self) -> None:
        self.cpu = time.process_time()
        self.started, self.saving = time.perf_counter(), {"save": 0.0, "save_cpu": 0.0}

    def begin(self, name: str, rounds: int, done: int) -> None:
        wall, cpu = time.perf_counter() - self.started, time.process_time() - self.cpu
        self._turn({"resume_s": wall, "resume_cpu_s": cpu})

    def round(self, record: Any) -> None:
        cpu, wall = time.process_time() - self.cpu, time.perf_counter() - self.wall
        self._turn({"cpu": cpu, "wall": wall, **self.saving})

    def _turn(self, told: dict[str, float]) -> None:
        print(json.dumps({**told, "peak_gib": peak()}), flush=True)
        sys.stdin.readline()
        self.cpu, self.wall = time.process_time(), time.perf_counter()


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def play(asked: argparse.Namespace) -> None:
    """One population, in this process."""
    folder = asked.folder / str(asked.population)
    first = asked.population // asked.participants
    if asked.part == "fill":
        watch: Any = Fill(first, asked.minutes)
    else:
        watch = Turns()
        real = RunFolder.save

        def save(self: RunFolder, *args: Any) -> None:
            wall, cpu = time.perf_counter(), time.process_time()
            real(self, *args)
            watch.saving = {
                "save": time.perf_counter() - wall,
                "save_cpu": time.process_time() - cpu,
            }

        RunFolder.save = save  # type: ignore[method-assign]
    srpfl.simulate(
        data=Slices(asked.population),
        model=srpfl.models.MLP(64, (64, 32), classes=10),
        algorithm=ALGORITHMS[asked.algorithm],
        participation=InTurn(sample=asked.participants, first=first),
        clock=srpfl.DynamicExponential(),
        rounds=first + asked.rounds,
        evaluate_at=[first + asked.rounds],
        evaluate_share=1000,
        engine="vectorised",
        out=folder,
        resume=(folder / "config.json").exists(),
        watchers=[watch],
    )


def child(asked: argparse.Namespace, population: int, part: str) -> Any:
    told = [sys.executable, __file__, str(asked.folder), "--population", str(population)]
    for name in ("participants", "rounds", "algorithm", "minutes"):
        told += [f"--{name}", str(getattr(asked, name))]
    return subprocess.Popen(
        [*told, "--part", part], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def filled(asked: argparse.Namespace, population: int) -> bool:
    """Let everyone take part once; whether all have."""
    process = child(asked, population, "fill")
    process.communicate()
    if process.returncode:
        raise SystemExit(process.returncode)
    rounds = asked.folder / str(population) / "rounds.jsonl"
    return rounds.read_bytes().count(b"\n") >= population // asked.participants


def in_turns(asked: argparse.Namespace) -> dict[int, list[dict[str, float]]]:
    """What each population told, one after the other, round by round."""
    told: dict[int, list[dict[str, float]]] = {asked.population: [], asked.small: []}
    players = {population: child(asked, population, "turns") for population in told}
    for population, player in players.items():  # both are there before either plays
        told[population].append(json.loads(player.stdout.readline()))
    for population, player in itertools.cycle(players.items()):
        player.stdin.write("go\n")
        player.stdin.flush()
        if not (line := player.stdout.readline()):
            break
        told[population].append(json.loads(line))
    for player in players.values():  # the other one has as few rounds left
        player.communicate()
    if min(map(len, told.values())) < 2 + WARM:
        raise SystemExit("these runs are over: call it with more rounds")
    return told


def result(asked: argparse.Namespace, population: int, told: list[dict[str, float]]) -> Any:
    began, measured = told[0], told[1 + WARM :]
    files = list((asked.folder / str(population) / "personal").iterdir())
    saves, busy = ([each[name] for each in measured] for name in ("save", "save_cpu"))
    return {
        "rounds": len(measured),
        "round_wall_s": statistics.median(each["wall"] for each in measured),
        "round_cpu_s": statistics.median(each["cpu"] for each in measured),
        "mean_round_wall_s": statistics.fmean(each["wall"] for each in measured),
        "mean_round_cpu_s": statistics.fmean(each["cpu"] for each in measured),
        "checkpoint_s": statistics.median(saves),
        "slowest_checkpoint_s": max(saves),
        "checkpoint_cpu_s": statistics.median(busy),
        "slowest_checkpoint_cpu_s": max(busy),
        "resume_s": began["resume_s"],
        "resume_cpu_s": began["resume_cpu_s"],
        "peak_gib": max(each["peak_gib"] for each in told),
        "files": len(files),
        "gib_on_disk": sum(file.stat().st_size for file in files) / 2**30,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--population", type=int, default=1_000_000)
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--participants", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--algorithm", choices=list(ALGORITHMS), default="FedRep")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--part", choices=["fill", "turns"])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.part:
        play(asked)
        return
    asked.folder.mkdir(parents=True, exist_ok=True)
    if not all(filled(asked, population) for population in (asked.population, asked.small)):
        print("time is up: call this again to go on")
        raise SystemExit(75)
    told = in_turns(asked)
    rows = {population: result(asked, population, lines) for population, lines in told.items()}
    large, small = rows[asked.population], rows[asked.small]
    names = ("round_wall_s", "round_cpu_s", "mean_round_wall_s", "mean_round_cpu_s")
    text = json.dumps(
        {
            "algorithm": asked.algorithm,
            "participants": asked.participants,
            "large_over_small": {name: large[name] / small[name] for name in names},
            **{str(population): row for population, row in rows.items()},
        },
        indent=1,
    )
    print(text)
    if asked.json:
        asked.json.write_text(text + "\n")


if __name__ == "__main__":
    main()

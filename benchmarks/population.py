"""A million clients, 100 of them per round: python benchmarks/population.py [--json FILE].

Samples are drawn when a client is asked for, and personal parts exist for participants only. Each
population runs in a process of its own, so that peak memory is its own; the two take turns. Times
are CPU seconds of that one process, so that nothing else on the machine counts.
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
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import srpfl
from srpfl.core.randomness import stream
from srpfl.data.base import Samples, Transform

ROUNDS, ASKED, REPEATS = 8, 100, 5


@dataclass(frozen=True)
class Drawn:
    """Clients with two of ten classes each, their samples made from the client's number."""

    clients: int
    classes: int = 10
    transform: Transform = Transform()

    def size(self, client: int) -> int:
        return 40

    def train(self, client: int) -> Samples:
        return self._samples("train", client, 40)

    def test(self, client: int) -> Samples:
        return self._samples("test", client, 10)

    def _samples(self, part: str, client: int, count: int) -> Samples:
        own = stream(0, "classes", client).choice(self.classes, size=2, replace=False)
        rng = stream(0, part, client)
        y = rng.choice(own, size=count)
        centres = stream(0, "centres").normal(size=(self.classes, 64))
        x = (centres[y] + rng.normal(size=(count, 64))).astype(np.float32)
        return Samples(x, y)


def play(population: int) -> dict[str, float]:
    starts: list[float] = []

    class Clock(srpfl.Watcher):
        def round(self, record: object) -> None:
            starts.append(time.process_time())

    run = srpfl.simulate(
        data=Drawn(population),
        model=srpfl.models.MLP(64, (64, 32), classes=10),
        algorithm=srpfl.FedRep(head_epochs=10, body_epochs=1),
        participation=srpfl.Everyone(sample=ASKED / population),
        rounds=ROUNDS,
        evaluate_every=0,
        seed=0,
        watchers=[Clock()],
    )
    gaps = [b - a for a, b in itertools.pairwise(starts[1:])]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"round_cpu_s": statistics.median(gaps), "peak_gib": peak, "loss": run.rounds[-1].loss}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--population", type=int)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.population:
        print(json.dumps(play(asked.population)))
        return
    found: dict[int, list[dict[str, float]]] = {1_000: [], 1_000_000: []}
    for _ in range(REPEATS):
        for population, rows in found.items():
            told = [sys.executable, __file__, "--population", str(population)]
            rows.append(json.loads(subprocess.check_output(told)))
    ratios = [
        large["round_cpu_s"] / small["round_cpu_s"]
        for small, large in zip(found[1_000], found[1_000_000], strict=True)
    ]
    result = {
        "ratio": statistics.median(ratios),
        "ratios": sorted(ratios),
        "peak_gib": max(row["peak_gib"] for row in found[1_000_000]),
        "round_cpu_s": {size: [row["round_cpu_s"] for row in rows] for size, rows in found.items()},
    }
    print(json.dumps(result, indent=1))
    if asked.json:
        asked.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

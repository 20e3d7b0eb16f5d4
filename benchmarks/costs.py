"""What a round costs, by participants and population: python benchmarks/costs.py [--json FILE]

Each cell is a process of its own, so that peak memory is its own: fedrep with the demo's network,
a checkpoint after every round. Rounds per second are of the median round after the first three, in
wall-clock time and in CPU time, which other programs do not disturb. Bytes are what all clients
receive and send in a round, and what a checkpoint writes.

    python benchmarks/costs.py --json results/scale/costs.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from scale import ALGORITHMS, Slices

import srpfl

PARTICIPANTS = (10, 100, 1000, 10_000)
POPULATIONS = (1000, 10_000, 100_000, 1_000_000, 10_000_000)
WARM, ROUNDS = 3, 5


class Clock(srpfl.Watcher):
    """When each round was over."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def round(self, record: Any) -> None:
        self.wall.append(time.perf_counter())
        self.cpu.append(time.process_time())


def play(population: int, participants: int) -> dict[str, float]:
    model, clock = srpfl.models.MLP(64, (64, 32), classes=10), Clock()
    algorithm = ALGORITHMS["FedRep"]
    with tempfile.TemporaryDirectory() as folder:
        srpfl.simulate(
            data=Slices(population),
            model=model,
            algorithm=algorithm,
            participation=srpfl.Everyone(sample=participants / population),
            clock=srpfl.DynamicExponential(),
            rounds=WARM + ROUNDS,
            evaluate_every=0,
            engine="vectorised",
            out=Path(folder) / "run",
            watchers=[clock],
        )
        personal = list((Path(folder) / "run" / "personal").iterdir())
        newest = max(personal, key=lambda file: file.name)
        checkpoint = Path(folder) / "run" / "checkpoints" / f"{WARM + ROUNDS:06d}"
        written = newest.stat().st_size + sum(f.stat().st_size for f in checkpoint.iterdir())
    shared = algorithm.split(model).shared
    sent = sum(value.numel() * value.element_size() for value in shared.values())
    return {
        "population": population,
        "participants": participants,
        "rounds_per_s": 1 / median_gap(clock.wall),
        "rounds_per_cpu_s": 1 / median_gap(clock.cpu),
        "bytes_sent": 2 * sent * participants,
        "bytes_written": written,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def median_gap(times: list[float]) -> float:
    times = times[WARM - 1 :]
    return statistics.median(b - a for a, b in itertools.pairwise(times))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cell", type=int, nargs=2, metavar=("POPULATION", "PARTICIPANTS"))
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.cell:
        print(json.dumps(play(*asked.cell)))
        return
    rows = []
    for participants in PARTICIPANTS:
        for population in POPULATIONS:
            if participants <= population:
                told = [sys.executable, __file__, "--cell", str(population), str(participants)]
                rows.append(json.loads(subprocess.check_output(told)))
                print(rows[-1], file=sys.stderr)
    text = "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n"
    print(text)
    if asked.json:
        asked.json.write_text(text)


if __name__ == "__main__":
    main()

"""Sharing one GPU: python benchmarks/one_gpu.py [--json FILE]

Rounds of the paper's LeNet with one engine in this process, with one Ray actor and with two actors
on the same card, in turns. Then a sweep of sixty short runs (3 methods, 4 rates, 5 seeds), one
after another and with as many as fit sharing the card.

    python benchmarks/one_gpu.py --json results/scale/one_gpu.json
    python benchmarks/one_gpu.py --device cpu --clients 4 --rounds 2 --seeds 1   # to try it
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import srpfl
from srpfl.bench import SETTINGS
from srpfl.engine import make_engine
from srpfl.engine.base import Job

REPEATS = 5


def rounds_of(asked: argparse.Namespace, actors: int | None) -> list[float]:
    """Seconds of each round after the first two."""
    case = replace(SETTINGS["lenet"], clients=asked.clients)
    model = case.model()
    parts, plans = case.algorithm.split(model), case.algorithm.plans(model)
    os.environ["SRPFL_RAY_ACTORS"] = str(actors or 1)
    name = "vectorised" if actors is None else "ray"
    engine: Any = make_engine(name, model, case.data(), device=asked.device)
    times = []
    for number in range(REPEATS + 2):
        who = range(asked.clients)
        personal = [parts.personal] * asked.clients
        job = Job(0, number, "train", who, parts.shared, personal, plans)
        start = time.perf_counter()
        engine.train([job])
        times.append(time.perf_counter() - start)
    if actors is not None:
        engine.close()
    return times[2:]


def grid_of(asked: argparse.Namespace, together: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        done = srpfl.sweep(
            grid={
                "method": ["fedavg", "fedrep", "srpfl"],
                "lr": [0.005, 0.01, 0.02, 0.05],
                "seed": list(range(asked.seeds)),
            },
            common={
                "data": "digits",
                "clients": 20,
                "rounds": asked.rounds,
                "engine": "vectorised",
                "device": asked.device,
            },
            out=folder,
            on="turn",
            together=together,
        )
        if not done.complete:
            raise SystemExit(str([row.error for row in done.rows if row.error]))
        return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with_ray = importlib.util.find_spec("ray") is not None  # without it, only the engine here
    alone, one, two = (
        statistics.median(rounds_of(asked, actors)) if actors is None or with_ray else None
        for actors in (None, 1, 2)
    )
    turn, shared = grid_of(asked, 1), grid_of(asked, 4 * asked.seeds)
    result = {
        "device": asked.device,
        "clients": asked.clients,
        "engine_here_s": alone,
        "one_actor_s": one,
        "two_actors_s": two,
        "sweep_in_turn_s": turn,
        "sweep_together_s": shared,
        "together_is_faster_by": turn / shared,
    }
    text = json.dumps(result, indent=1)
    print(text)
    if asked.json:
        asked.json.write_text(text + "\n")


if __name__ == "__main__":
    main()

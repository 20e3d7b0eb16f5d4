"""The paper's round by two checkouts, in turns on one GPU: python benchmarks/rounds.py OLD

OLD is a copy of another commit (`git worktree add OLD COMMIT`). Each checkout has a process of its
own, which keeps its engine and its graphs; they take turns round by round, so that a slow host or a
busy card is slow for both. To try it: `--device cpu --clients 2 --images 20`.
"""

from __future__ import annotations

import argparse
import inspect
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]
WARM = 2  # rounds of each before any is counted


def serve(root: Path, device: str, clients: int, images: int) -> None:
    """The child: `engine PRECISION` makes an engine, `round` answers with its seconds."""
    sys.path[:0] = [str(root / "src"), str(root / "benchmarks")]
    import h200
    import torch

    from srpfl.engine import VectorisedEngine
    from srpfl.models import LeNet5

    data, model, engine, number = h200.images(clients, images), LeNet5(classes=10), None, 0
    for line in sys.stdin:
        word, *precision = line.split()
        took = 0.0
        if word == "engine":
            engine = VectorisedEngine(model, data, device=device, precision=precision[0])
        else:
            number += 1
            job: Any = h200.fedrep_job(model, clients, number)
            plural = "jobs" in inspect.signature(VectorisedEngine.train).parameters
            start = time.perf_counter()
            engine.train([job] if plural else job)
            if device == "cuda":
                torch.cuda.synchronize()
            took = time.perf_counter() - start
        print(json.dumps(took), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--images", type=int, default=500, help="of each client")
    parser.add_argument("--repeats", type=int, default=14)
    parser.add_argument("--precisions", nargs="*", default=["tf32", "bfloat16"])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.old, asked.device, asked.clients, asked.images)
        return
    told = ["--serve", "--device", asked.device, "--clients", str(asked.clients)]
    told += ["--images", str(asked.images)]
    sides = {
        name: subprocess.Popen(
            [sys.executable, __file__, str(root), *told],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, root in (("new", HERE), ("old", asked.old.resolve()))
    }

    def tell(name: str, what: str) -> float:
        print(what, file=sides[name].stdin, flush=True)
        return float(sides[name].stdout.readline())

    found: dict[str, Any] = {}
    for precision in asked.precisions:
        for name in sides:
            tell(name, f"engine {precision}")
            for _ in range(WARM):
                tell(name, "round")
        times: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(asked.repeats):
            for name in list(sides)[:: 1 if number % 2 else -1]:
                times[name].append(tell(name, "round"))
        ratios = [new / old for new, old in zip(times["new"], times["old"], strict=True)]
        found[precision] = {name: statistics.median(taken) for name, taken in times.items()}
        found[precision] |= {"new / old": statistics.median(ratios), "all": times}
        print(precision, {k: v for k, v in found[precision].items() if k != "all"}, flush=True)
        if asked.json:
            asked.json.write_text(json.dumps(found, indent=1) + "\n")
    for side in sides.values():
        side.stdin.close()
        side.wait(60)


if __name__ == "__main__":
    main()

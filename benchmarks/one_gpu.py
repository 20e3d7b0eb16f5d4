"""Sharing one GPU: PYTHONPATH=src python benchmarks/one_gpu.py [--json FILE]

Rounds of the paper's LeNet with one engine in this process, with one Ray actor and with two actors
on the same card, with what they differ by and the memory that they take. Then a sweep of sixty
short runs (3 methods, 4 rates, 5 seeds), with all runs of one algorithm sharing the card and one
after another. Each part is a process of its own, and the file is written after each number.

    python benchmarks/one_gpu.py --json results/scale/one_gpu.json
    python benchmarks/one_gpu.py --device cpu --clients 4 --rounds 2 --seeds 1   # to try it
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from srpfl.bench import SETTINGS
from srpfl.core.split import Params
from srpfl.engine import make_engine
from srpfl.engine.base import Job, Local
from srpfl.runs.run import Run
from srpfl.sweeps.plan import Planned, planned
from srpfl.sweeps.playing import play

REPEATS = 5
NAMES = {1: "one_actor", 2: "two_actors"}
PATIENCE = 30  # seconds for all actors to start
PARTS = {"actors": 0.6, "sweep": 1.0}  # at most so much of the time that is left


def actors(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Rounds in this process, and with one and two actors."""
    torch.zeros(1, device=asked.device)
    idle = memory(asked)
    here, expected, full, _ = rounds_of(asked, None)
    yield {"engine_here_s": statistics.median(here), "engine_here_all_s": here}
    yield {"engine_here_gib": full - idle}
    if importlib.util.find_spec("ray") is None:
        yield {"actors_error": "Ray is not installed"}
        return
    for count in asked.actors:
        name = NAMES[count]
        idle = memory(asked)
        start = time.perf_counter()
        times, found, full, started = rounds_of(asked, count)
        yield {f"{name}_s": statistics.median(times), f"{name}_all_s": times}
        yield {f"{name}_started": started}
        yield {f"{name}_gib": full - idle, f"{name}_whole_s": time.perf_counter() - start}
        yield {f"{name}_relative_difference": apart(expected, found)}


def rounds_of(asked: argparse.Namespace, count: int | None) -> tuple[list[float], Any, float, int]:
    """Seconds of each round after the first two, the answers of the last, the memory in use, and
    how many actors there are."""
    case = replace(SETTINGS["lenet"], clients=asked.clients)
    torch.manual_seed(0)
    model = case.model()
    parts, plans = case.algorithm.split(model), case.algorithm.plans(model)
    os.environ["SRPFL_RAY_ACTORS"] = str(count or 1)
    name = "vectorised" if count is None else "ray"
    engine: Any = make_engine(name, model, case.data(), device=asked.device)
    until = time.monotonic() + PATIENCE
    while count and len(engine._actors) < count and time.monotonic() < until:
        engine._fill()
        time.sleep(0.1)
    if count:
        gpus = engine.ray.cluster_resources().get("GPU", 0)
        print(f"{len(engine._actors)} actors started; Ray sees {gpus:g} GPUs", file=sys.stderr)
    times: list[float] = []
    answers: Sequence[Local] = []
    for number in range(REPEATS + 2):
        personal = [parts.personal] * asked.clients
        job = Job(0, number, "train", range(asked.clients), parts.shared, personal, plans)
        start = time.perf_counter()
        [answers] = engine.train([job])
        times.append(time.perf_counter() - start)
        print(f"{name}, {count or 'no'} actors: {times[-1]:.3f} s", file=sys.stderr)
    full, started = memory(asked), 0
    if count is not None:
        started = len(engine._actors)
        engine.close()
    return times[2:], answers, full, started


def memory(asked: argparse.Namespace) -> float:
    """GiB of the card that are in use, by whichever process."""
    if asked.device == "cpu":
        return 0.0
    gc.collect()
    free, total = torch.cuda.mem_get_info()
    return float(total - free) / 2**30


def apart(ours: Sequence[Local], theirs: Sequence[Local]) -> float:
    """The largest difference between the same tensors of a client, relative to their size."""
    assert [mine.client for mine in ours] == [other.client for other in theirs]
    return max(
        relative(a, b)
        for mine, other in zip(ours, theirs, strict=True)
        for a, b in (
            (mine.reply.shared, other.reply.shared),
            (mine.reply.personal, other.reply.personal),
        )
    )


def relative(ours: Params, theirs: Params) -> float:
    assert ours.keys() == theirs.keys()
    pairs = [(ours[name].cpu(), theirs[name].cpu()) for name in ours]
    return max((float((a - b).norm() / a.norm().clamp(min=1e-9)) for a, b in pairs), default=0.0)


def sweep(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The sharing runs come first, so that time may run out only for those in turn."""
    print("a run of each method, so that both find a warm card", file=sys.stderr)
    sweep_of(asked, 1, runs=slice(0, 3))
    shared, values = sweep_of(asked, 8 * asked.seeds)
    yield {"runs": len(values), "sweep_together_s": shared}
    turn, others = sweep_of(asked, 1, deadline=asked.until)
    scaled = turn * len(values) / len(others)
    yield {"runs_in_turn": len(others), "sweep_in_turn_s": turn}
    yield {"together_is_faster_by": scaled / shared}
    yield {"largest_difference_of_a_value": max(abs(values[n] - others[n]) for n in others)}


def sweep_of(
    asked: argparse.Namespace,
    together: int,
    *,
    runs: slice = slice(None),
    deadline: float | None = None,
) -> tuple[float, dict[str, float]]:
    """Seconds, and the last value of each run."""
    with tempfile.TemporaryDirectory() as folder:
        plan = planned(
            Path(folder),
            grid={
                "seed": list(range(asked.seeds)),  # first: what is left of it has all methods
                "lr": [0.005, 0.01, 0.02, 0.05],
                "method": ["fedavg", "fedrep", "srpfl"],
            },
            common={
                "data": "digits",
                "clients": 20,
                "rounds": asked.rounds,
                "engine": "vectorised",
                "device": asked.device,
            },
        )[runs]
        left = None if deadline is None else time.perf_counter() + deadline - time.time()
        start = time.perf_counter()
        done = play(
            plan, Path(folder), on="turn", together=together, watch=said(start), deadline=left
        )
        seconds = time.perf_counter() - start
        if errors := [row.error for row in done.rows if row.error]:
            raise SystemExit(str(errors))
        over = [row.folder for row in done.rows if row.state == "done"]
        return seconds, {each.name: Run.load(each).scores[-1].value for each in over}


def said(start: float) -> Any:
    """Says how far the runs are, every ten seconds."""
    last = start

    def look(plan: Sequence[Planned]) -> None:
        nonlocal last
        if time.perf_counter() > last + 10:
            last = time.perf_counter()
            begun = sum(run.folder.exists() for run in plan)
            text = f"{begun} of {len(plan)} runs begun after {last - start:.0f} s"
            print(text, file=sys.stderr)

    return look


def noted(asked: argparse.Namespace, told: dict[str, Any]) -> None:
    print(json.dumps(told), file=sys.stderr, flush=True)
    held = json.loads(asked.json.read_text())
    asked.json.write_text(json.dumps({**held, **told}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--actors", type=int, nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--seconds", type=float, default=240, help="for everything")
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.part:
        for told in {"actors": actors, "sweep": sweep}[asked.part](asked):
            noted(asked, told)
        return
    end = time.time() + asked.seconds
    with tempfile.TemporaryDirectory() as folder:
        asked.json = asked.json or Path(folder) / "one_gpu.json"
        name = torch.cuda.get_device_name() if asked.device != "cpu" else "cpu"
        asked.json.write_text("{}")
        noted(asked, {"device": name, "torch": torch.__version__, "clients": asked.clients})
        noted(asked, {"rounds": asked.rounds})
        for part, share in PARTS.items():
            limit = share * (end - time.time())
            options = ["--part", part, "--json", asked.json, "--until", time.time() + limit - 5]
            command = [sys.executable, *sys.argv, *map(str, options)]
            try:
                subprocess.run(command, check=True, timeout=limit)
            except subprocess.TimeoutExpired:
                noted(asked, {f"{part}_error": f"not over after {limit:.0f} s"})
            except subprocess.CalledProcessError as error:
                noted(asked, {f"{part}_error": f"ended with {error.returncode}"})
        print(asked.json.read_text())


if __name__ == "__main__":
    main()

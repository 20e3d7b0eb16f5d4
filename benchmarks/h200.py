"""The paper's CIFAR-10 setting on one GPU: PYTHONPATH=src python benchmarks/h200.py --out FOLDER.

Images are random: only time and memory are measured here. Every number is the median of repeats
after a warm-up that is reported apart. FOLDER/h200.json is written after each number, and what it
holds already is not measured again. To try it: `--device cpu --clients 2 --images 10 --rounds 2`.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import srpfl
from srpfl.core.plan import Phase, Plan
from srpfl.core.rules import SGD
from srpfl.core.split import state_of
from srpfl.data.base import Pooled, Samples, Transform
from srpfl.engine import Job, VectorisedEngine
from srpfl.engine.graphs import CapturedSteps
from srpfl.models import MLP, LeNet5

LITTLE = 0.012  # of the card's memory: 1.7 GiB
CIFAR = Transform((0.491, 0.482, 0.447), (0.247, 0.243, 0.262), crop=4, flip=True)


def images(clients: int, each: int = 500, shape: tuple[int, ...] = (3, 32, 32)) -> Pooled:
    rng = np.random.default_rng(0)

    def pool(size: int) -> tuple[Samples, list[np.ndarray]]:
        total = clients * size
        x = rng.integers(0, 256, size=(total, *shape), dtype=np.uint8)
        y = rng.integers(0, 10, size=total)
        return Samples(x, y), np.split(np.arange(total), clients)

    train, train_parts = pool(each)
    test, test_parts = pool(each // 5)
    transform = CIFAR if len(shape) == 3 else Transform((0.5,), (0.5,))
    return Pooled("random", train, test, train_parts, test_parts, 10, transform)


def fedrep_job(model: nn.Module, clients: int, number: int) -> Job:
    algorithm = srpfl.FedRep(head_epochs=10, body_epochs=1)
    parts, plans = algorithm.split(model), algorithm.plans(model)
    heads = [parts.personal] * clients
    return Job(0, number, "train", range(clients), parts.shared, heads, plans)


def steps_job(model: nn.Module, clients: int, steps: int) -> Job:
    everything = frozenset(name for name, _ in model.named_parameters())
    plans = (Plan((Phase(everything, steps=steps),), SGD(momentum=0.5)),)
    return Job(0, 0, "train", range(clients), state_of(model), [{}] * clients, plans)


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(work: Callable[[int], Any], repeats: int = 5) -> dict[str, Any]:
    times = []
    for number in range(repeats + 1):
        wait()
        start = time.perf_counter()
        work(number)
        wait()
        times.append(time.perf_counter() - start)
    first, *rest = times
    return {"median": statistics.median(rest), "all": rest, "first": first}


def step_time(
    make: Callable[[], nn.Module], data: Pooled, precision: str, device: str
) -> dict[str, Any]:
    """The slope between 50 and 150 steps, so that what is paid once per job drops out."""
    engine = VectorisedEngine(make(), data, device=device, precision=precision)
    some, many = (
        timed(lambda _, n=n: engine.train([steps_job(make(), data.clients, n)]))["median"]
        for n in (50, 150)
    )
    alone = replay_ms(engine) if device == "cuda" else None
    return {"ms": 1e3 * (many - some) / 100, "device_ms": alone}


def replay_ms(engine: VectorisedEngine) -> float:
    """One step on the device alone, its inputs being there already."""
    program = next(
        p for p, _ in engine.phases.programs._kept.values() if isinstance(p, CapturedSteps)
    )
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(7):
        start.record()
        program.graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / len(program.batches.y))
    return statistics.median(times)


def round_time(
    data: Pooled, precision: str, device: str, profile: Path | None = None
) -> dict[str, Any]:
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    engine = VectorisedEngine(LeNet5(classes=10), data, device=device, precision=precision)
    jobs = [fedrep_job(LeNet5(classes=10), data.clients, number) for number in range(8)]
    found = timed(lambda number: engine.train([jobs[number]]))
    found["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else None
    if profile is not None:
        with torch.profiler.profile() as seen:
            engine.train([jobs[7]])
            wait()
        order = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
        table = seen.key_averages().table(sort_by=order, row_limit=40)
        profile.write_text(table)
    return found


def long_run(data: Pooled, precision: str, rounds: int, device: str) -> dict[str, Any]:
    start = time.perf_counter()
    srpfl.simulate(
        data=data,
        model=LeNet5(classes=10),
        algorithm=srpfl.FedRep(head_epochs=10, body_epochs=1),
        rounds=rounds,
        evaluate_every=10,
        seed=0,
        engine="vectorised",
        device=device,
        precision=precision,
    )
    return {"seconds": time.perf_counter() - start, "rounds": rounds}


def seeds_together(
    data: Pooled, precision: str, seeds: int, rounds: int, device: str
) -> dict[str, Any]:
    """Early rounds of several seeds, ten clients each: in turn, and as one cohort. The start of an
    engine, once for each seed or once for all, is part of it."""
    runs = [
        {
            "data": data,
            "model": LeNet5(classes=10),
            "algorithm": srpfl.FedRep(head_epochs=10, body_epochs=1),
            "participation": srpfl.FirstN(n=min(10, data.clients)),
            "rounds": rounds,
            "evaluate_every": 0,
            "seed": seed,
            "engine": "vectorised",
            "device": device,
            "precision": precision,
        }
        for seed in range(seeds)
    ]
    times: dict[str, list[float]] = {"in turn": [], "together": []}
    for _ in range(6):  # the first of each warms up
        for name, groups in (("in turn", [[run] for run in runs]), ("together", [runs])):
            start = time.perf_counter()
            for group in groups:
                for outcome in srpfl.simulate_together(group):
                    if isinstance(outcome, Exception):
                        raise outcome
            times[name].append(time.perf_counter() - start)
    kept = {name: found[1:] for name, found in times.items()}
    ratio = statistics.median(a / b for a, b in zip(*kept.values(), strict=True))
    return {"seeds": seeds, "rounds": rounds, **kept, "ratio": ratio}


def short_of_memory(data: Pooled) -> dict[str, Any]:
    """The same round with a little of the card's memory: split, and the same but for rounding."""
    job = fedrep_job(LeNet5(classes=10), data.clients, 0)

    def mean() -> tuple[int, dict[str, torch.Tensor]]:
        engine = VectorisedEngine(LeNet5(classes=10), data, device="cuda")
        [answers] = engine.train([job])
        shared = [answer.reply.shared for answer in answers]
        stacks = {name: torch.stack([one[name].cpu() for one in shared]) for name in shared[0]}
        return engine.phases.most, {name: stack.double().mean(0) for name, stack in stacks.items()}

    _, plenty = mean()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(LITTLE)
    most, little = mean()
    torch.cuda.set_per_process_memory_fraction(1.0)
    apart = max(float((little[n] - mine).norm() / mine.norm()) for n, mine in plenty.items())
    assert most < data.clients, "there was enough memory"
    gib = LITTLE * torch.cuda.get_device_properties(0).total_memory / 2**30
    return {"gib": gib, "clients at once": most, "relative difference": apart}


ROUND = {"tf32": 0.26, "bfloat16": 0.157}  # seconds that the paper's round must not exceed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", default="step,round,cohorts,run,together,memory")
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--images", type=int, default=500, help="of each client")
    asked = parser.parse_args()
    parts, device = asked.parts.split(","), asked.device
    asked.out.mkdir(parents=True, exist_ok=True)
    file = asked.out / "h200.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    found |= {
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        "torch": torch.__version__,
    }

    def note(part: str, name: str, measured: Callable[[], Any]) -> None:
        if part in parts and name not in found:
            found[name] = measured()
            print(name, json.dumps(found[name]), flush=True)
            file.write_text(json.dumps(found, indent=1))

    data = images(asked.clients, asked.images)

    def lenet() -> nn.Module:
        return LeNet5(classes=10)

    def mlp() -> nn.Module:
        return MLP(784, (512, 256, 64), classes=10)

    def flat(each: int, precision: str) -> dict[str, Any]:
        return step_time(mlp, images(asked.clients, each, (784,)), precision, device)

    for low in ROUND:
        table = asked.out / f"profile-{low}.txt"
        note("round", f"fedrep round, {low}", partial(round_time, data, low, device, table))
    for low in ROUND:
        note("step", f"LeNet step, {low}", partial(step_time, lenet, data, low, device))
        # With few samples the first layer is trained in their span (not in bfloat16).
        for name, share in (("MLP step", 1.6), ("MLP step, 150 images", 0.3)):
            note("step", f"{name}, {low}", partial(flat, int(share * asked.images), low))
    for clients in (asked.clients // 10, asked.clients, 10 * asked.clients):
        name = f"fedrep round of {clients}, tf32"
        few = partial(images, max(1, clients), asked.images)
        note("cohorts", name, lambda few=few: round_time(few(), "tf32", device))
    note("run", "fedrep run, tf32", partial(long_run, data, "tf32", asked.rounds, device))
    together = partial(seeds_together, data, "tf32", seeds=4, rounds=10, device=device)
    note("together", "seeds together, tf32", together)
    if device == "cuda":
        note("memory", "little memory", partial(short_of_memory, data))
    for low, most in ROUND.items():
        taken = found.get(f"fedrep round, {low}", {}).get("median", float("nan"))
        print(f"the paper's round, {low}: {taken:.3f} s (at most {most})")


if __name__ == "__main__":
    main()

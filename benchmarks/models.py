"""One round of many kinds of models on a GPU: all clients as one, against one after another.

    PYTHONPATH=src python benchmarks/models.py --out models.json

A round is FedRep's, with one epoch on the head and one on the body, for 100 clients with 100
samples each in batches of 10. The loop is measured on fewer clients, and its time is scaled up: it
trains one client after another, so it is proportional to their number. All samples are random: only
time is measured here. The two are measured in turns, in one process. The file is written after each
row, and what it holds already is not measured again. To try it: `--device cpu --clients 2 --few 1
--samples 10 --repeats 1`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import srpfl
from srpfl.data.base import Pooled, Samples, Transform
from srpfl.engine import LoopEngine, VectorisedEngine
from srpfl.engine.base import Engine, Job
from srpfl.models import VGG, CharGRU, CharTransformer, MobileNet, ResNet

CLIENTS, SAMPLES, TOKENS, LENGTH = 100, 100, 80, 64
BATCH_TO_GROUP = 1.3  # BatchNorm's time over GroupNorm's, at most
WANTED = {"gru": 10, "resnet18-group": 16, "resnet18-batch": 16}
USUAL = 40  # times faster than the loop


class TutorialLeNet(nn.Module):
    """As in PyTorch's own tutorial on CIFAR-10."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.pool, self.conv2 = (
            nn.Conv2d(3, 6, 5),
            nn.MaxPool2d(2, 2),
            nn.Conv2d(6, 16, 5),
        )
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.view(-1, 400)
        logits: Tensor = self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))
        return logits


MODELS: dict[str, Callable[[], nn.Module]] = {
    "vgg": lambda: VGG(classes=10),
    "lenet-tutorial": TutorialLeNet,
    "resnet20-group": lambda: ResNet(depth=20, classes=10, norm="group"),
    "resnet20-batch": lambda: ResNet(depth=20, classes=10, norm="batch"),
    "resnet18-group": lambda: ResNet(depth=18, classes=10, norm="group"),
    "resnet18-batch": lambda: ResNet(depth=18, classes=10, norm="batch"),
    "mobilenet": lambda: MobileNet(classes=10),
    "transformer": lambda: CharTransformer(TOKENS, width=128, layers=2, length=LENGTH),
    "gru": lambda: CharGRU(TOKENS, hidden=128),
}


def data_for(name: str, clients: int, samples: int) -> tuple[Pooled, srpfl.Task]:
    rng, count = np.random.default_rng(0), clients * samples
    parts = np.split(np.arange(count), clients)
    if name in ("gru", "transformer"):
        x, y = (rng.integers(0, TOKENS, size=(count, LENGTH)) for _ in range(2))
        pool, transform = Samples(x, y), Transform(scale=False)
        return Pooled("tokens", pool, pool, parts, parts, 0, transform), srpfl.NextToken()
    x = rng.integers(0, 256, size=(count, 3, 32, 32), dtype=np.uint8)
    pool = Samples(x, rng.integers(0, 10, size=count))
    return Pooled("images", pool, pool, parts, parts, 10, Transform()), srpfl.Classification()


def timed(engine: Engine, model: nn.Module, clients: int, number: int, device: str) -> float:
    algorithm = srpfl.FedRep(head_epochs=1, body_epochs=1)
    split = algorithm.split(model)
    personal = [split.personal] * clients
    plans = algorithm.plans(model)
    job = Job(0, number, "train", range(clients), split.shared, personal, plans)
    _wait(device)
    start = time.perf_counter()
    engine.train([job])
    _wait(device)
    return time.perf_counter() - start


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def measure(name: str, precision: str, asked: argparse.Namespace) -> dict[str, Any]:
    torch.manual_seed(0)
    model = MODELS[name]()
    device, clients, few, repeats = asked.device, asked.clients, asked.few, asked.repeats
    data, task = data_for(name, clients, asked.samples)
    choices: dict[str, Any] = {"task": task, "device": device, "precision": precision}
    loop = LoopEngine(model, data, **choices)
    stacked = VectorisedEngine(model, data, **choices)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    first = timed(stacked, model, clients, 0, device)
    timed(loop, model, 1, 0, device)
    ours, theirs = [], []
    for number in range(1, repeats + 1):
        ours.append(timed(stacked, model, clients, number, device))
        theirs.append(timed(loop, model, few, number, device) * clients / few)
    ratios = [slow / fast for slow, fast in zip(theirs, ours, strict=True)]
    wanted = WANTED.get(name, USUAL)
    return {
        "model": name,
        "precision": precision,
        "parameters": sum(p.numel() for p in model.parameters()),
        "round_s": round(statistics.median(ours), 4),
        "first_round_s": round(first, 2),
        "loop_s": round(statistics.median(theirs), 2),
        "ratio": round(statistics.median(ratios), 1),
        "ratio_min": round(min(ratios), 1),
        "ratio_max": round(max(ratios), 1),
        "wanted": wanted,
        "holds": statistics.median(ratios) >= wanted,
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1) if device == "cuda" else 0,
    }


def verdicts(rows: list[dict[str, Any]]) -> None:
    """What is to be shown, a line each."""
    for row in rows:
        if "failed" in row:
            print(f"{row['model']}, {row['precision']}: failed, {row['failed']}")
            continue
        times = f"{row['ratio']} times faster than the loop (at least {row['wanted']})"
        print(f"{row['model']}, {row['precision']}: {row['round_s']} s, {times}")
    seconds = {(row["model"], row["precision"]): row.get("round_s") for row in rows}
    for (name, precision), batch in seconds.items():
        group = seconds.get((name.replace("-batch", "-group"), precision))
        if name.endswith("-batch") and batch and group:
            ratio = f"{batch / group:.2f} of GroupNorm's time (at most {BATCH_TO_GROUP})"
            print(f"{name}, {precision}: {ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--precisions", nargs="*", default=["tf32", "bfloat16"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--samples", type=int, default=SAMPLES, help="of each client")
    parser.add_argument("--few", type=int, default=5, help="clients that the loop is measured on")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if asked.out is not None and asked.out.exists():
        rows = [row for row in json.loads(asked.out.read_text())["rows"] if "failed" not in row]
    done = {(row["model"], row["precision"]) for row in rows}
    wanted = [(name, precision) for name in asked.models for precision in asked.precisions]
    for name, precision in wanted:
        if (name, precision) in done:
            continue
        try:
            row = measure(name, precision, asked)
        except Exception as error:  # the other models are worth measuring all the same
            row = {"model": name, "precision": precision, "failed": str(error)[:300]}
        rows.append(row)
        print(json.dumps(row), flush=True)
        if asked.device == "cuda":
            torch.cuda.empty_cache()
        if asked.out is not None:
            device = torch.cuda.get_device_name() if asked.device == "cuda" else "CPU"
            content = {"device": device, "torch": torch.__version__, "rows": rows}
            asked.out.write_text(json.dumps(content, indent=1) + "\n")
    verdicts(rows)


if __name__ == "__main__":
    main()

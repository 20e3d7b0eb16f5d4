"""Adapters of many clients over one frozen backbone: python benchmarks/lora.py --json FILE.

A round of local work (two head epochs, one of shared adapters) on random tokens, by the vectorised
engine and by the loop, which trains one client after another, in turns so that both see the same
machine. Beside them, memory: of all clients over one backbone, and of as many copies of the model.
The default is a small transformer for a CPU. On a GPU, all that is to be shown, within minutes:

    PYTHONPATH=src python benchmarks/lora.py --h200 --json lora.json

plays MiniLM (22.7 million parameters, rank 8, 64 sentences of 64 tokens) in TF32 and bfloat16: 100
clients against the loop (20 times, in under 12 GiB), then 1,000 clients in chunks; then 100 clients
whose blocks are computed again (`--recomputed`), and 100 that train a copy of the whole model each
(`--full`). It needs PyTorch alone. What the file holds already is not played again. Weights are
random unless `--weights` names a file; neither time nor memory depends on them.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from minilm import MiniLM, Size, minilm
from torch import nn

import srpfl
from srpfl.data import Padded, Pooled, Samples
from srpfl.engine import Engine, Job, LoopEngine, VectorisedEngine
from srpfl.models import lora, recomputed

CLASSES = 4
FASTER, GIB = 20, 12  # than the loop, and less than that, on an H200 with 100 clients
# What is to be shown on an H200.
SHOWN: list[dict[str, Any]] = [
    *(
        {"clients": clients, "precision": precision, "no_loop": clients > 100}
        for clients in (100, 1000)
        for precision in ("tf32", "bfloat16")
    ),
    {"clients": 100, "precision": "tf32", "no_loop": True, "recomputed": True},
    {"clients": 1000, "precision": "tf32", "no_loop": True, "recomputed": True},
    {"clients": 100, "precision": "tf32", "no_loop": True, "full": True},
]


def backbone(options: argparse.Namespace) -> nn.Module:
    if options.minilm:
        return minilm(CLASSES, options.weights)
    torch.manual_seed(0)
    return MiniLM(CLASSES, Size(words=1000, layers=2, width=64, heads=4, inner=256))


def sentences(clients: int, each: int, length: int) -> Pooled:
    rng = np.random.default_rng(0)
    total = clients * each
    mask = (np.arange(length) < rng.integers(length // 2, length + 1, (total, 1))).astype(np.int64)
    ids = rng.integers(3, 1000, (total, length)) * mask
    pool = Samples({"input_ids": ids, "attention_mask": mask}, rng.integers(0, CLASSES, total))
    parts = np.split(np.arange(total), clients)
    return Pooled("random", pool, pool, parts, parts, CLASSES, Padded())


def seconds(engine: Engine, job: Job, device: str) -> float:
    start = time.perf_counter()
    engine.train([job])
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def peak(device: str) -> float:
    """GiB: of the GPU, or of this process so far."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measured(options: argparse.Namespace) -> dict[str, Any]:
    model = backbone(options)
    if not options.full:
        model = lora(model, rank=options.rank, targets=["query", "value"])
    if options.recomputed:
        model = recomputed(model)
    data = sentences(options.clients, options.sentences, options.length)
    algorithm = srpfl.FedRep(head_epochs=2, body_epochs=1, personal="classifier")
    parts, plans = algorithm.split(model), algorithm.plans(model)
    heads = [parts.personal] * options.clients
    job = Job(0, 0, "train", range(options.clients), parts.shared, heads, plans)
    choices: dict[str, Any] = {"device": options.device, "precision": options.precision}
    if options.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    stacked = VectorisedEngine(model, data, together=options.together, **choices)
    warm = seconds(stacked, job, options.device)
    memory = {"vectorised": peak(options.device)}
    reserved = torch.cuda.max_memory_reserved() / 2**30 if options.device == "cuda" else None
    # The loop is proportional to the clients: a few are measured, and their time is scaled up.
    few = min(options.few, options.clients)
    some = replace(job, clients=range(few), personal=heads[:few])
    engines: dict[str, tuple[Engine, Job, float]] = {"vectorised": (stacked, job, 1)}
    if not options.no_loop:
        engines["loop"] = LoopEngine(model, data, **choices), some, options.clients / few
        seconds(engines["loop"][0], replace(job, clients=[0], personal=heads[:1]), options.device)
    times: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(options.repeats):
        for name, (engine, work, scale) in engines.items():
            if options.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            times[name].append(seconds(engine, work, options.device) * scale)
            memory.setdefault(name, peak(options.device))
    medians = {name: statistics.median(found) for name, found in times.items()}
    whole = sum(value.numel() for value in model.parameters())
    return {
        "seconds of a round": medians,
        "loop / vectorised": medians["loop"] / medians["vectorised"] if "loop" in medians else None,
        "GiB reserved": reserved,
        "clients at once": min(stacked.phases.most, options.clients),
        "seconds of the first round": warm,
        "peak GiB": memory,
        "GiB of a model per client": whole * 4 * options.clients / 2**30,
        "parameters": whole,
        "shared and trained": sum(value.numel() for value in parts.shared.values()),
        **{name: str(value) for name, value in vars(options).items() if name != "json"},
    }


def shown(options: argparse.Namespace) -> None:
    """Each of what is to be shown, once; the file is written after each."""
    rows: list[dict[str, Any]] = []
    if options.json and options.json.exists():
        rows = json.loads(options.json.read_text())["rows"]
    for wanted in SHOWN:
        if any(row["setting"] == wanted for row in rows):
            continue
        chosen = argparse.Namespace(**{**vars(options), **wanted, "minilm": True})
        row = {"setting": wanted, **measured(chosen)}
        if not wanted["no_loop"]:
            row["holds"] = (
                row["loop / vectorised"] >= FASTER and row["peak GiB"]["vectorised"] < GIB
            )
        rows.append(row)
        print(json.dumps(row, indent=1), flush=True)
        if options.json:
            kept = {"device": named(options.device), "torch": torch.__version__, "rows": rows}
            options.json.write_text(json.dumps(kept, indent=1) + "\n")
        gc.collect()
    for row in rows:
        faster, peak_gib = row["loop / vectorised"], row["peak GiB"]["vectorised"]
        said = f"{row['seconds of a round']['vectorised']:.2f} s, {peak_gib:.1f} GiB"
        if faster is not None:
            said += (
                f", {faster:.0f} times faster than the loop (at least {FASTER}, under {GIB} GiB)"
            )
        kind = "".join(f", {name}" for name in ("recomputed", "full") if row["setting"].get(name))
        print(f"{row['setting']['clients']} clients, {row['setting']['precision']}{kind}: {said}")


def named(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "CPU"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--h200", action="store_true", help="all that is to be shown on a GPU")
    parser.add_argument("--minilm", action="store_true", help="of MiniLM's size")
    parser.add_argument("--weights", type=Path, help="model.safetensors of all-MiniLM-L6-v2")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--few", type=int, default=5, help="clients that the loop is measured on")
    parser.add_argument("--sentences", type=int, default=64, help="of each client")
    parser.add_argument("--length", type=int, default=64, help="tokens of a sentence, at most")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--together", type=int, help="clients in a stack (as many as pay)")
    parser.add_argument("--device", help="cuda or cpu")
    parser.add_argument("--precision", default="float32", help="bfloat16: the base in bfloat16")
    parser.add_argument("--no-loop", action="store_true")
    parser.add_argument("--recomputed", action="store_true", help="blocks twice, for less memory")
    parser.add_argument("--full", action="store_true", help="no adapters: each trains all weights")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.device = options.device or ("cuda" if options.h200 else "cpu")
    if options.h200:
        shown(options)
        return
    found = measured(options)
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

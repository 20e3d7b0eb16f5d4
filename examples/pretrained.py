"""The next character of what Shakespeare's roles say, by a reader of plain text.

    python examples/pretrained.py --data-dir ../shared/data

A transformer is trained on some plays first, in lower case and without marks, and then frozen.
Roles of other plays, the clients, tune it together to their texts as they are written: low-rank
adapters on all its layers are shared, the output layer is each role's own.
Clients are phones with real networks. On a GPU with a larger reader, bytes decide:

    python examples/pretrained.py --data-dir ../shared/data --device cuda --precision tf32 \
        --width 256 --layers 4 --steps 600 --clients 30 --rounds 8 --seeds 0 1 2 --all \
        --rate 0.001 0.003 0.01 --seconds-per-sample 0.02 --json gpu.json

What the file holds already is not played again.
"""

import argparse
import csv
import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import srpfl
from srpfl.clock import Phones
from srpfl.data import Pooled, Samples
from srpfl.data.characters import encode, windows

TRIAL = 1000  # the seed on which step sizes are tried
LENGTH = 64  # characters of a piece
LEAST, MOST = 5_000, 20_000  # characters of a client: neither tiny nor huge

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--data-dir", type=Path, default=Path("../shared/data"))
parser.add_argument("--clients", type=int, default=20, help="roles that tune")
parser.add_argument("--width", type=int, default=64, help="of the reader")
parser.add_argument("--layers", type=int, default=2, help="of the reader")
parser.add_argument("--steps", type=int, default=300, help="of training on the other plays")
parser.add_argument("--batch", type=int, default=32, help="of a client's steps")
parser.add_argument(
    "--rate",
    type=float,
    nargs="+",
    default=[0.01],
    help="of a client's steps; of several, the best for fedrep on a seed of its own",
)
parser.add_argument("--rank", type=int, default=4)
parser.add_argument("--rounds", type=int, default=6)
parser.add_argument("--seconds-per-sample", type=float, default=0.01, help="of a median phone")
parser.add_argument("--all", action="store_true", help="all methods, and what bytes cost")
parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
parser.add_argument("--precision", default="float32")
parser.add_argument("--seeds", type=int, nargs="+", default=[0])
parser.add_argument("--backbone", type=Path, help="keep the frozen reader in this file")
parser.add_argument("--json", type=Path, help="keep what was played in this file")
parser.add_argument("--csv", type=Path, help="write the table to this file")
options = parser.parse_args()
gpu = options.device == "cuda" or (options.device == "auto" and torch.cuda.is_available())
device = torch.device("cuda" if gpu else "cpu")


def pieces(texts: list[np.ndarray]) -> Samples:
    """Texts in pieces, and the next characters."""
    sides = zip(*(windows(tokens, LENGTH) for tokens in texts), strict=True)
    return Samples(*map(np.concatenate, sides))


def clients(texts: list[np.ndarray]) -> Pooled:
    """The last fifth of each role's text is for tests."""
    both = [tokens[: -len(tokens) // 5] for tokens in texts], [t[-len(t) // 5 :] for t in texts]
    ends = [np.cumsum([len(windows(t, LENGTH)[0]) for t in part])[:-1] for part in both]
    pools = [pieces(part) for part in both]
    parts = [np.split(np.arange(len(p.y)), at) for p, at in zip(pools, ends, strict=True)]
    return Pooled("shakespeare", *pools, *parts, 0, task="next-token")


def plain(text: str) -> np.ndarray:
    """A text as readers are often given it: lower case, without marks."""
    return encode(re.sub(r"[^a-z\n ]", "", text.lower()))


def pretrained(texts: list[np.ndarray]) -> torch.nn.Module:
    """A reader of these texts."""
    torch.manual_seed(0)
    shape = {"width": options.width, "layers": options.layers}
    model = srpfl.models.CharTransformer(srpfl.data.characters.TOKENS, **shape)
    if options.backbone and options.backbone.exists():
        model.load_state_dict(load_file(options.backbone))
        return model
    model, rng = model.to(device), np.random.default_rng(0)
    x, y = (torch.from_numpy(part).long().to(device) for part in pieces(texts))
    highest = 3e-3 * (64 / options.width) ** 0.5
    optimiser = torch.optim.Adam(model.parameters(), lr=highest)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, highest, total_steps=options.steps)
    for _ in range(options.steps):
        some = torch.from_numpy(rng.integers(len(x), size=128 if gpu else 32)).to(device)
        loss = F.cross_entropy(model(x[some]).transpose(1, 2), y[some])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        rates.step()
    model = model.cpu()
    if options.backbone:
        save_file(model.state_dict(), options.backbone)
    return model


@dataclass(frozen=True)
class Charged:
    """A clock that notes the bytes that travel, or counts others."""

    clock: Phones
    instead: int | None = None
    noted: list[tuple[int, int]] = field(default_factory=list)
    fixed = False

    @property
    def communication(self) -> float:
        return self.clock.communication

    def times(self, seed, round, clients, population, work):
        if self.instead is not None:
            work = replace(work, down=self.instead, up=self.instead)
        self.noted[:] = [(int(np.max(work.down)), int(np.max(work.up)))]
        return self.clock.times(seed, round, clients, population, work)


@torch.no_grad()
def untuned(model: torch.nn.Module, data: Pooled) -> float:
    right = total = 0
    for part in data.test_parts:
        x, y = (torch.from_numpy(each[part]).long() for each in data.test_pool)
        right += int((model(x).argmax(-1) == y).sum())
        total += int((y >= 0).sum())
    return right / total


texts: dict[tuple[str, str], list[str]] = {}
for file in sorted((options.data_dir / "shakespeare").glob("train*.parquet")):
    for row in pq.read_table(file, columns=["play", "role", "text"]).to_pylist():
        texts.setdefault((row["play"], row["role"]), []).append(row["text"])
written = {role: "\n".join(said) for role, said in texts.items()}
read = {role: encode(text) for role, text in written.items()}
order = np.random.default_rng(0).permutation(sorted({play for play, _ in read})).tolist()
some = [role for role, tokens in read.items() if LEAST <= len(tokens) <= MOST]
chosen = sorted(some, key=lambda role: order.index(role[0]))[: options.clients]
unread = {play for play, _ in chosen}
whole = pretrained([plain(text) for (play, _), text in written.items() if play not in unread])
model = srpfl.models.lora(whole, rank=options.rank)
data = clients([read[role] for role in chosen])

phones = Phones(
    traces=str(options.data_dir / "availability"),
    bandwidth=str(options.data_dir / "bandwidth" / "bandwidth.csv"),
    seconds_per_sample=options.seconds_per_sample,
    always=True,
)
size = sum(value.numel() * 4 for value in whole.parameters())


def methods(rate: float) -> dict:
    """By name: the algorithm, who is waited for, and other bytes than those that travel."""
    common = {"batch_size": options.batch, "rule": srpfl.Adam(lr=rate)}
    usual = {"head_epochs": 1, "tuning_epochs": 1, **common}
    fedrep, small = srpfl.FedRep(**usual), srpfl.FedRep(**usual, wire="int8")
    waits = srpfl.Everyone()
    doubles = srpfl.Doubling(start=max(1, data.clients // 5), every=max(1, options.rounds // 3))
    found = {"fedrep": (fedrep, waits, None), "srpfl": (fedrep, doubles, None)}
    if options.all:
        alone = srpfl.FedRep(**usual, personal=lambda name: True)
        found |= {
            "auto": (fedrep, srpfl.Auto(), None),
            "fedrep, int8 answers": (small, waits, None),
            "srpfl, int8 answers": (small, doubles, None),
            "fedrep, if the whole model travelled": (fedrep, waits, size),
            "srpfl, if the whole model travelled": (fedrep, doubles, size),
            "each role alone": (alone, waits, None),
            "one model for all": (srpfl.FedAvg(epochs=2, **common), waits, None),
        }
    return found


KINDS = {"each role alone": "local", "one model for all": "global"}


def play(method: str, rate: float, rounds: int, seeds: list[int]) -> list[dict]:
    """The runs of all seeds, side by side."""
    algorithm, participation, instead = methods(rate)[method]
    clock = Charged(phones, instead)
    same = {
        "name": method,
        "data": data,
        "model": model,
        "task": srpfl.NextToken(),
        "pretrained": True,  # the head too begins as it was trained
        "algorithm": algorithm,
        "participation": participation,
        "clock": clock,
        "rounds": rounds,
        "evaluate_every": 1,
        "evaluations": KINDS.get(method, "personalised"),
        "device": options.device,
        "precision": options.precision,
    }
    found = []
    runs = srpfl.simulate_together([{**same, "seed": seed} for seed in seeds])
    for seed, run in zip(seeds, runs, strict=True):
        if isinstance(run, Exception):
            raise run
        row = {"method": method, "seed": seed, "down": clock.noted[0][0], "up": clock.noted[0][1]}
        row["accuracy"] = [round(point.value, 5) for point in run.evaluations]
        row["seconds"] = [round(point.time(0), 1) for point in run.evaluations]
        found.append(row)
        print(method, rate, seed, row["accuracy"], row["seconds"], flush=True)
    return found


kept = {"weights": size // 4, "untuned": untuned(whole, data), "tried": {}, "rows": []}
if options.json and options.json.exists():
    kept |= json.loads(options.json.read_text())
kept["options"] = {name: str(value) for name, value in vars(options).items()}
print(f"{size // 4:,} weights; untuned: {kept['untuned']:.1%}", flush=True)


def keep() -> None:
    if options.json:
        options.json.write_text(json.dumps(kept, indent=1) + "\n")


tried = kept["tried"]
for rate in options.rate if len(options.rate) > 1 else ():
    if str(rate) not in tried:
        [row] = play("fedrep", rate, max(2, options.rounds // 2), [TRIAL])
        tried[str(rate)] = row["accuracy"]
        keep()
best = max(options.rate, key=lambda rate: tried[str(rate)][-1] if tried else 0)
rows = kept["rows"]
for method in methods(best):
    if not any(row["method"] == method for row in rows):
        rows += play(method, best, options.rounds, options.seeds)
        keep()


def reaches(row: dict, target: float) -> float | None:
    """When the target is reached."""
    points = zip(row["accuracy"], row["seconds"], strict=True)
    return next((seconds for accuracy, seconds in points if accuracy >= target), None)


mark = options.rounds * 2 // 3 - 1
targets = {row["seed"]: row["accuracy"][mark] for row in rows if row["method"] == "fedrep"}
lines = [["method", "bytes down", "bytes up", "accuracy at the end", "seconds to target"]]
for method in methods(best):
    its = [row for row in rows if row["method"] == method]
    reached = [reaches(row, targets[row["seed"]]) for row in its]
    seconds = "not reached" if None in reached else f"{fmean(reached):,.0f}"
    end = fmean(row["accuracy"][-1] for row in its)
    lines.append([method, f"{its[0]['down']:,}", f"{its[0]['up']:,}", f"{end:.1%}", seconds])
print(f"target: {fmean(targets.values()):.1%}, fedrep's in round {mark + 1}")
for line in lines:
    print(" | ".join(line))
if options.csv:
    with options.csv.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)

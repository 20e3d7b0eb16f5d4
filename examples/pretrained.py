"""The next character of what Shakespeare's roles say, by a reader that has read other roles.

    python examples/pretrained.py --data-dir ../shared/data

A small transformer is trained on some roles first and then frozen. Other roles, the clients, tune
it together: low-rank adapters on all its layers are shared, the output layer is each role's own.
Clients are phones with real networks, where bytes decide.
"""

import argparse
import csv
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import srpfl
from srpfl.clock import Phones

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--data-dir", type=Path, default=Path("../shared/data"))
parser.add_argument("--clients", type=int, default=20, help="roles that tune")
parser.add_argument("--steps", type=int, default=300, help="of training on the other roles")
parser.add_argument("--rank", type=int, default=4)
parser.add_argument("--rounds", type=int, default=6)
parser.add_argument("--all", action="store_true", help="all methods, and what bytes cost")
parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--csv", type=Path, help="write the table to this file as well")
options = parser.parse_args()


def pretrained(data: srpfl.data.Pooled) -> torch.nn.Module:
    """A reader of the roles that are no clients."""
    rows = np.concatenate(data.train_parts[options.clients :])
    rng = np.random.default_rng(options.seed)
    torch.manual_seed(options.seed)
    model = srpfl.models.CharTransformer(srpfl.data.characters.TOKENS, width=64)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(options.steps):
        some = rng.choice(rows, 32)
        x, y = (torch.from_numpy(part[some]).long() for part in data.train_pool)
        loss = F.cross_entropy(model(x).transpose(1, 2), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model


@dataclass(frozen=True, kw_only=True)
class EightBits(srpfl.FedRep):
    """FedRep whose answers hold their change in whole numbers from -127 to 127, and a scale."""

    def update(self, sent, server, answers, population):
        def rounded(name: str, value: torch.Tensor) -> torch.Tensor:
            scale = (value - sent[name]).abs().max().clamp(min=1e-12) / 127
            return sent[name] + scale * ((value - sent[name]) / scale).round()

        few = [replace(a, shared={n: rounded(n, v) for n, v in a.shared.items()}) for a in answers]
        return super().update(sent, server, few, population)


@dataclass(frozen=True)
class Charged:
    """A clock that counts other bytes than those that travel in the simulation."""

    clock: Phones
    down: int
    up: int
    fixed = False

    @property
    def communication(self) -> float:
        return self.clock.communication

    def times(self, seed, round, clients, population, work):
        other = replace(work, down=self.down, up=self.up)
        return self.clock.times(seed, round, clients, population, other)


everyone = srpfl.data.load("shakespeare", data_dir=options.data_dir)
whole = pretrained(everyone)
model = srpfl.models.lora(whole, rank=options.rank)
data = replace(
    everyone,
    train_parts=everyone.train_parts[: options.clients],
    test_parts=everyone.test_parts[: options.clients],
)

phones = Phones(
    traces=str(options.data_dir / "availability"),
    bandwidth=str(options.data_dir / "bandwidth" / "bandwidth.csv"),
    seconds_per_sample=0.01,
    always=True,
)
usual = {
    "head_epochs": 1,
    "tuning_epochs": 1,
    "rule": srpfl.SGD(lr=0.5, momentum=0.5),
}
fedrep, shared = srpfl.FedRep(**usual), srpfl.FedRep(**usual).split(model).shared
size = sum(value.numel() * 4 for value in whole.parameters())
small = sum(value.numel() * 4 for value in shared.values())
head = sum(value.numel() * 4 for value in whole.head.parameters())
bits = small // 4 + 4 * len(shared)
doubling = srpfl.Doubling(start=max(1, data.clients // 5), every=max(1, options.rounds // 3))
PLAYED = {  # method, who is waited for, bytes down and up
    "fedrep": (fedrep, srpfl.Everyone(), small, small),
    "srpfl": (fedrep, doubling, small, small),
}
if options.all:
    alone = srpfl.FedRep(**usual, personal=lambda name: True)
    together = srpfl.FedAvg(epochs=2, rule=usual["rule"])
    PLAYED |= {
        "auto": (fedrep, srpfl.Auto(), small, small),
        "fedrep, int8 answers": (EightBits(**usual), srpfl.Everyone(), small, bits),
        "srpfl, int8 answers": (EightBits(**usual), doubling, small, bits),
        "fedrep, if the whole model travelled": (fedrep, srpfl.Everyone(), size, size),
        "srpfl, if the whole model travelled": (fedrep, doubling, size, size),
        "each role alone": (alone, srpfl.Everyone(), 0, 0),
        "one model for all": (together, srpfl.Everyone(), small + head, small + head),
    }
KINDS = {"each role alone": "local", "one model for all": "global"}
runs = {}
for name, (algorithm, participation, down, up) in PLAYED.items():
    runs[name] = srpfl.simulate(
        name=name,
        data=data,
        model=model,
        task=srpfl.NextToken(),
        pretrained=True,  # the head too begins as it was trained
        algorithm=algorithm,
        participation=participation,
        clock=Charged(phones, down, up),
        rounds=options.rounds,
        evaluate_every=1,
        evaluations=KINDS.get(name, "personalised"),
        seed=options.seed,
        device=options.device,
    )
    print(name, [round(record.value, 3) for record in runs[name].evaluations], flush=True)

target = runs["fedrep"].evaluations[options.rounds * 2 // 3 - 1].value
lines = [["method", "bytes down", "bytes up", "accuracy at the end", "seconds to target"]]
for name, run in runs.items():
    reached = next((e for e in run.evaluations if e.value >= target), None)
    seconds = "not reached" if reached is None else f"{reached.time(0):.0f}"
    lines.append([name, *map(str, PLAYED[name][2:]), f"{run.evaluations[-1].value:.1%}", seconds])
print(f"target: {target:.1%}, fedrep's in round {options.rounds * 2 // 3}")
for line in lines:
    print(" | ".join(line))
if options.csv:
    with options.csv.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)

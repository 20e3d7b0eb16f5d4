"""FedAvg rounds beside pfl's and Flower's simulations: make -C benchmarks against-rivals.

All do the same local work on the same clients with the same model: SGD, batches of 10, one epoch,
uniform average. They take turns; a round's time leaves out start-up, which is shown apart. First
the models that came out are compared by their loss on all clients' samples.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from same_work import Rounds, initial, samples_of, setting_of

from srpfl.core.means import weighted_mean
from srpfl.core.split import state_of
from srpfl.engine import make_engine
from srpfl.engine.base import Job


class Ours:
    def __init__(self, name: str) -> None:
        self.setting, self.data = setting_of(name), setting_of(name).data()
        self.model = initial(name)
        self.engine = make_engine("auto", self.model, self.data)
        self.warm = False

    def play(self, rounds: int) -> Rounds:
        start_up = 0.0
        if not self.warm:
            start = time.perf_counter()
            self._rounds(1)
            start_up, self.warm = time.perf_counter() - start, True
        times, shared = self._rounds(rounds)
        return times, max(0.0, start_up - statistics.median(times)), shared

    def _rounds(self, rounds: int) -> tuple[list[float], dict[str, torch.Tensor]]:
        shared, times = state_of(self.model), []
        plans = self.setting.algorithm.plans(self.model)
        everyone = range(self.data.clients)
        for number in range(rounds):
            start = time.perf_counter()
            job = Job(0, number, "train", everyone, shared, [{}] * len(everyone), plans)
            [answers] = self.engine.train([job])
            parts = [answer.reply.shared for answer in answers]
            shared = weighted_mean(parts, [1.0] * len(parts))
            times.append(time.perf_counter() - start)
        return times, shared


def loss_of(name: str, state: dict[str, torch.Tensor]) -> float:
    model = copy.deepcopy(initial(name))
    model.load_state_dict(state)
    x, y = (torch.cat(tensors) for tensors in zip(*samples_of(name), strict=True))
    with torch.no_grad():
        return float(F.cross_entropy(model(x), y))


def compare(name: str, make: Callable[[str], Any], repeats: int, rounds: int) -> dict[str, Any]:
    ours, rival = Ours(name), make(name)
    try:
        # A rival's first round is its start-up, so it comes out one round further.
        played = ours.play(rounds + 1), rival.play(rounds)
        losses = [loss_of(name, model) for _, _, model in played]
        start = loss_of(name, state_of(initial(name)))
        # How far each went down, to a tenth; the orders of samples differ.
        matched = abs(losses[0] - losses[1]) <= 0.1 * (start - min(losses))
        pairs = [(ours.play(rounds), rival.play(rounds)) for _ in range(repeats)]
    finally:
        if hasattr(ours.engine, "close"):
            ours.engine.close()
    mine, theirs = (
        [statistics.median(side[0]) for side in sides] for sides in zip(*pairs, strict=True)
    )
    ratios = sorted(b / a for a, b in zip(mine, theirs, strict=True))
    return {
        "setting": name,
        "rival": make.__name__,
        "losses": {"start": start, "ours": losses[0], "theirs": losses[1], "matched": matched},
        "ours_s": mine,
        "theirs_s": theirs,
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "their_start_up_s": statistics.median(side[1][1] for side in pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="light:flower,pfl-cnn:pfl,pfl-mlp:pfl")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found = []
    for pair in asked.only.split(","):
        name, rival = pair.split(":")
        make = getattr(importlib.import_module(f"rival_{rival}"), rival.capitalize())
        found.append(compare(name, make, asked.repeats, asked.rounds))
        print(json.dumps(found[-1], default=float), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()

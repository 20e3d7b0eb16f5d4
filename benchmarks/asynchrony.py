"""What keeping late answers costs: seconds per local update, beside synchronous cohorts.

    python benchmarks/asynchrony.py [--updates 10000] [--out FILE]

The demo's network on digits, 100 clients. A round of FedBuff goes on with ten answers while fifty
clients are at work; a synchronous round asks ten clients. The two take turns in pieces, so that
what else the machine does hits both.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import srpfl

K = 10


class Clock(srpfl.Watcher):
    """When each round was over, by the processor time of this process: others may be at work."""

    def __init__(self) -> None:
        self.ends = [time.process_time()]

    def round(self, record: object) -> None:
        self.ends.append(time.process_time())


def seconds(participation: object, rounds: int, seed: int) -> float:
    """Of a run, without its start."""
    watch = Clock()
    srpfl.simulate(
        data=srpfl.data.load("digits", clients=100, seed=0),
        model=srpfl.models.MLP(64, (64, 32), classes=10),
        algorithm=srpfl.FedRep(head_epochs=2, body_epochs=1),
        participation=participation,
        clock=srpfl.DynamicExponential(),
        rounds=rounds,
        seed=seed,
        evaluate_every=0,
        device="cpu",
        watchers=[watch],
    )
    return watch.ends[-1] - watch.ends[1]


def turns(updates: int, pieces: int) -> Iterator[tuple[float, float]]:
    """Seconds per update, synchronous and asynchronous, piece by piece."""
    rounds = max(2, updates // K // pieces)
    for piece in range(pieces):
        pair = [
            seconds(policy, rounds, piece) / ((rounds - 1) * K)
            for policy in (srpfl.Everyone(sample=K), srpfl.FedBuff(sample=50, k=K))
        ]
        yield pair[0], pair[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--updates", type=int, default=10_000, help="local updates of each kind")
    parser.add_argument("--pieces", type=int, default=10)
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    given = parser.parse_args()
    found = list(turns(given.updates, given.pieces))
    synchronous = sum(one for one, _ in found) / len(found)
    asynchronous = sum(other for _, other in found) / len(found)
    told = {
        "updates": given.updates,
        "synchronous_ms": round(1000 * synchronous, 3),
        "asynchronous_ms": round(1000 * asynchronous, 3),
        "ratio": round(asynchronous / synchronous, 3),
        "ratios": [round(other / one, 3) for one, other in found],
    }
    print(json.dumps(told))
    if given.out:
        given.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()

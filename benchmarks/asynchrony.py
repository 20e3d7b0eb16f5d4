"""What keeping late answers costs: seconds per local update, beside synchronous cohorts.

    python benchmarks/asynchrony.py [--updates 10000] [--out FILE]

The demo's network on digits, 100 clients. A round of FedBuff ends with ten answers while fifty
clients are at work; a synchronous round asks ten clients. The two runs take turns after every fifty
rounds, so that what else the machine does hits both. Time is that of the processor, from the end of
the first round on.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from pathlib import Path

import srpfl
from srpfl.runs.records import RoundRecord

K = 10  # answers in a round
TURN = 50  # rounds


class Turns(srpfl.Watcher):
    """Lets one of two runs play at a time, and notes what each of its turns took."""

    def __init__(self, lock: threading.Condition, turn: list[int], me: int) -> None:
        self.lock, self.turn, self.me = lock, turn, me
        self.seconds: list[float] = []
        self._began = 0.0

    def wait(self) -> None:
        with self.lock:
            self.lock.wait_for(lambda: self.turn[0] in (self.me, -1))
        self._began = time.process_time()

    def hand_over(self, *, last: bool = False) -> None:
        self.seconds.append(time.process_time() - self._began)
        with self.lock:
            self.turn[0] = -1 if last or self.turn[0] == -1 else 1 - self.me
            self.lock.notify_all()

    def round(self, record: RoundRecord) -> None:
        if record.round == 1 or record.round % TURN == 0:
            self.hand_over()
            self.wait()


def play(participation: object, rounds: int, turns: Turns) -> None:
    turns.wait()
    srpfl.simulate(
        data=srpfl.data.load("digits", clients=100, seed=0),
        model=srpfl.models.MLP(64, (64, 32), classes=10),
        algorithm=srpfl.FedRep(head_epochs=2, body_epochs=1),
        participation=participation,
        clock=srpfl.DynamicExponential(),
        rounds=rounds,
        evaluate_every=0,
        device="cpu",
        watchers=[turns],
        progress=False,
    )
    turns.hand_over(last=True)


def measure(rounds: int) -> list[list[float]]:
    """Seconds of each turn, synchronous and asynchronous, without the first round."""
    lock, turn = threading.Condition(), [0]
    both = [Turns(lock, turn, me) for me in (0, 1)]
    policies = srpfl.Everyone(sample=K), srpfl.FedBuff(sample=50, k=K)
    threads = [
        threading.Thread(target=play, args=(policy, rounds, turns))
        for policy, turns in zip(policies, both, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [turns.seconds[1:] for turns in both]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--updates", type=int, default=10_000, help="local updates of each kind")
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    given = parser.parse_args()
    rounds = max(2 * TURN, given.updates // K)
    synchronous, asynchronous = measure(rounds)
    updates = (rounds - 1) * K
    told = {
        "updates": rounds * K,
        "synchronous_ms": round(1000 * sum(synchronous) / updates, 3),
        "asynchronous_ms": round(1000 * sum(asynchronous) / updates, 3),
        "ratio": round(sum(asynchronous) / sum(synchronous), 3),
        "ratios": [round(b / a, 3) for a, b in zip(synchronous, asynchronous, strict=True)],
    }
    print(json.dumps(told))
    if given.out:
        given.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()

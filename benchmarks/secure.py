"""What a secure sum costs a client, beside its local update: seconds and bytes, by members.

python benchmarks/secure.py
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

import srpfl
from srpfl.privacy.secure import Member, fixed_point


def measured(members: int, numbers: int) -> dict[str, Any]:
    """One client's part of a round among so many members, in seconds and bytes sent."""
    others = {name: Member(name) for name in range(members)}
    keys = {name: other.introduce() for name, other in others.items()}
    began = time.process_time()
    mine = others[0]
    letters = mine.share(keys, members // 2 + 1)
    shared = time.process_time() - began
    inbox = {name: others[name].share(keys, members // 2 + 1)[0] for name in range(1, members)}
    began = time.process_time()
    mine.receive(inbox)
    masked = mine.mask(fixed_point(np.zeros(numbers)))
    revealed = mine.reveal(list(keys))
    rest = time.process_time() - began
    parts = {
        "letters": sum(map(len, letters.values())),
        "answer": masked.nbytes,
        "shares": sum(map(len, revealed.values())),
    }
    return {"members": members, "numbers": numbers, "seconds": shared + rest, "bytes": parts}


def local_update() -> tuple[float, int]:
    """Seconds of a client of the demo for one round of FedRep, and the numbers that it sends."""
    data = srpfl.data.load("digits", clients=50, partition=srpfl.data.Shards(3), seed=0)
    options: dict[str, Any] = {
        "data": data,
        "model": srpfl.models.MLP(64, (64, 32), classes=10),
        "algorithm": srpfl.FedRep(head_epochs=10, body_epochs=1),
        "engine": "loop",
        "evaluate_every": 0,
    }
    times = []
    for rounds in (1, 3):
        began = time.process_time()
        run = srpfl.simulate(**options, rounds=rounds)
        times.append(time.process_time() - began)
    numbers = sum(value.numel() for value in run.state.shared.values())
    return (times[1] - times[0]) / 2 / data.clients, numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--members", type=int, nargs="+", default=[10, 50, 100])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    seconds, numbers = local_update()
    rows = [measured(members, numbers) for members in given.members]
    if given.json:
        print(json.dumps({"local": seconds, "plain": 4 * numbers, "rows": rows}, indent=1))
        return
    print(f"a local update: {seconds:.3f} s, {4 * numbers:,} bytes")
    for row in rows:
        total = sum(row["bytes"].values())
        share = row["seconds"] / seconds
        work = f"{row['seconds']:.3f} s ({share:.2f} of the local update)"
        print(f"{row['members']:5} members: {work}, {total:,} bytes")


if __name__ == "__main__":
    main()

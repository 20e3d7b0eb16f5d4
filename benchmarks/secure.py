"""What a secure sum costs: a client's seconds and bytes by members, beside its local update; and
the simulated time to an accuracy with and without masks.

python benchmarks/secure.py [--json] > results/privacy/secure.json
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

import srpfl
from srpfl.clock.masked import Masked
from srpfl.privacy.secure import Member, fixed_point

CLIENTS = 50
TARGET = 0.85
COSTS = (0.0, 1.0)  # C, of one exchange of letters; masks need four of them in a round
POLICIES = {"fedrep": srpfl.Everyone(), "srpfl": srpfl.Doubling(start=5, every=5)}


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


def demo(**changes: Any) -> dict[str, Any]:
    """The demo's choices."""
    return {
        "data": srpfl.data.load("digits", clients=50, partition=srpfl.data.Shards(3), seed=0),
        "model": srpfl.models.MLP(64, (64, 32), classes=10),
        "algorithm": srpfl.FedRep(head_epochs=10, body_epochs=1),
        **changes,
    }


def local_update() -> tuple[float, int]:
    """Seconds of a client of the demo for one round of FedRep, and the numbers that it sends."""
    times = []
    for rounds in (2, 8):
        began = time.process_time()
        run = srpfl.simulate(**demo(engine="loop", evaluate_every=0), rounds=rounds)
        times.append(time.process_time() - began)
    numbers = sum(value.numel() for value in run.state.shared.values())
    return (times[1] - times[0]) / 6 / CLIENTS, numbers


def clocks(seconds: float) -> list[dict[str, Any]]:
    """Simulated time to the accuracy, for FedRep and SRPFL, plain and masked."""
    plain = srpfl.clock.FixedExponential()
    rows = []
    for name, policy in POLICIES.items():
        for masks in (False, True):
            clock = Masked(clock=plain, update=seconds) if masks else plain
            average = "secure" if masks else "mean"
            algorithm = srpfl.FedRep(head_epochs=10, body_epochs=1, average=average)
            run = srpfl.simulate(
                **demo(algorithm=algorithm, participation=policy, clock=clock),
                rounds=60,
                evaluate_every=1,
                stop_at=TARGET,
            )
            time_to = {cost: run.time_to(TARGET, (4 if masks else 1) * cost) for cost in COSTS}
            asked = [record.asked for record in run.rounds]
            row = {"policy": name, "masks": masks, "rounds": len(asked), "asked": max(asked)}
            rows.append({**row, "time": time_to})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--members", type=int, nargs="+", default=[10, 20, 50])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    seconds, numbers = local_update()
    rows = [measured(members, numbers) for members in given.members]
    simulated = clocks(seconds)
    if given.json:
        told = {"local": seconds, "plain": 4 * numbers, "rows": rows}
        print(json.dumps({**told, "target": TARGET, "clocks": simulated}, indent=1))
        return
    print(f"a local update: {seconds:.3f} s, {4 * numbers:,} bytes")
    for row in rows:
        total = sum(row["bytes"].values())
        share = row["seconds"] / seconds
        work = f"{row['seconds']:.3f} s ({share:.2f} of the local update)"
        print(f"{row['members']:5} members: {work}, {total:,} bytes")
    for row in simulated:
        times = ", ".join(f"{time:.1f} at C = {cost:g}" for cost, time in row["time"].items())
        how = "masked" if row["masks"] else "plain"
        print(f"{row['policy']:7} {how:6} time to {TARGET:.0%} in {row['rounds']} rounds: {times}")


if __name__ == "__main__":
    main()

"""Runs without training: the report needs records, and their arithmetic is easy to know."""

from __future__ import annotations

import numpy as np

from srpfl.options import methods as options
from srpfl.runs.folder import RunFolder
from srpfl.runs.records import EvaluationRecord, RoundRecord
from srpfl.runs.run import Run

HIGHER = ("accuracy", "label accuracy", "r2")
METHODS = ["fedavg", "fedavg-ft", "flanp", "flanp-ft", "fedrep", "srpfl", "lg-fedavg", "lg-srpfl"]


def run(
    name: str = "srpfl",
    *,
    rounds: int = 20,
    clients: int = 10,
    seed: int = 0,
    sees: bool = False,
    communication: float = 0.0,
    start: int = 2,
    clock: str = "FixedExponential",
    planned: int | None = None,
    metric: str = "accuracy",
    stop_at: float | None = None,
    data: str = "made up </script>",
    first: float = 0.3,
) -> Run:
    """A run that waits for ever more of its clients and learns a little in every round.

    Accuracies rise by 0.6, to 0.9 and more; what is better when it is lower falls from 20 to 10
    and less.
    """
    higher = metric in HIGHER
    known = options.METHODS.get(name)
    waits = known is not None and known.participation == "everyone"
    if waits:
        start = clients
    rng = np.random.default_rng(seed)
    times = rng.exponential(size=clients)
    config = {
        "format": 2,
        "task": {"kind": "Made", "metric": metric, "higher_is_better": higher},
        "name": name,
        "headline": "personalised",
        "communication": communication,
        "sees_communication": sees,
        "algorithm": {"kind": known.algorithm.__name__ if known else "FedRep", "head_epochs": 10},
        "participation": {"kind": "Everyone"}
        if waits
        else {"kind": "Doubling", "start": start, "every": 5},
        "clock": {"kind": clock, "rate": 1.0},
        "model": "MLP",
        "data": {"name": data, "clients": clients, "classes": 4 * higher},
        "rounds": planned or rounds,
        "seed": seed,
        "stop_at": stop_at,
        "options": {"method": name, "data": "digits", "seed": seed, "rounds": rounds},
    }
    played, tested, computing = [], [], 0.0
    for number in range(1, rounds + 1):
        stage = (number - 1) // 5
        wait = min(clients, start * 2**stage)
        order = [int(client) for client in np.argsort(times)]
        waited, late = order[:wait], order[wait:]
        duration = float(times[waited[-1]])
        computing += duration
        played.append(
            RoundRecord(number, stage, wait, clients, waited, [float(times[c]) for c in waited],
                        late, [float(times[c]) for c in late], 1.0, duration, computing)
        )  # fmt: skip
        values = [
            min(1.0, first + 0.6 * number / rounds + 0.01 * (c % 3))
            if higher
            else 20.0 - 10 * number / rounds - 0.1 * (c % 3)
            for c in range(clients)
        ]
        tested.append(
            EvaluationRecord(number, "personalised", computing, float(np.mean(values)), values,
                             [10] * clients, metric, higher)
        )  # fmt: skip
    counts = rng.integers(0, 9, size=(clients, 4)).tolist()
    return Run(config, played, tested, counts=counts if higher else None)


def keep(run: Run, folder: RunFolder, *, upto: int | None = None) -> None:
    """Write a run into a folder, as if it had been played so far."""
    if not (folder.path / "config.json").exists():
        folder.create(dict(run.config), run.counts)
    done = len(folder.rounds())
    for record in run.rounds[done:upto]:
        folder.add(record)
    for tested in run.evaluations[done:upto]:
        folder.add(tested)
    folder.release()

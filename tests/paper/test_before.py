"""The paper's methods come out as they did before there were slots, tasks and jobs.

``before.json`` was written by this file with the code of commit c728051 on the path:

    PYTHONPATH=BEFORE/src python tests/paper/test_before.py > tests/paper/before.json

On one machine the two agree in every bit. Other processors add numbers in another order, so losses
and weights are held to 1e-4 here; who takes part and when is held exactly.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srpfl

BEFORE = Path(__file__).with_name("before.json")
RULE = srpfl.SGD(lr=0.1, momentum=0.5)
STEPS = {"rule": RULE, "batch_size": 10}
DOUBLING = srpfl.Doubling(start=3, every=1)
CASES: dict[str, tuple[Any, Any, Any]] = {
    "fedavg": (srpfl.FedAvg(**STEPS), srpfl.Everyone(), srpfl.FixedExponential()),
    "flanp": (srpfl.FedAvg(**STEPS), DOUBLING, srpfl.FixedExponential()),
    "fedavg-ft": (srpfl.FedAvgFT(**STEPS), srpfl.FirstN(n=4), srpfl.DynamicExponential()),
    "fedrep": (srpfl.FedRep(**STEPS), srpfl.Everyone(sample=0.5), srpfl.IIDExponential()),
    "srpfl": (srpfl.FedRep(**STEPS), DOUBLING, srpfl.FixedExponential()),
    "lg-srpfl": (srpfl.LGFedAvg(**STEPS), DOUBLING, srpfl.FixedExponential()),
    "fedper": (srpfl.FedPer(**STEPS), srpfl.FlanpRule(start=3), srpfl.FixedExponential()),
    "fedbabu": (srpfl.FedBABU(**STEPS), srpfl.Deadline(seconds=0.7), srpfl.DynamicExponential()),
    "hf-maml": (srpfl.HFMAML(batch_size=10), srpfl.Everyone(), srpfl.FixedExponential()),
}


def played(case: str, engine: str) -> dict[str, Any]:
    """Of a short run: who took part and when, the losses, the accuracies, the weights."""
    algorithm, participation, clock = CASES[case]
    data = srpfl.data.load("digits", clients=12, seed=3)
    run = srpfl.simulate(
        data=data,
        model=srpfl.models.MLP(64, (16, 16), classes=data.classes),
        algorithm=algorithm,
        participation=participation,
        clock=clock,
        rounds=4,
        seed=3,
        engine=engine,
        device="cpu",
        evaluate_every=2,
    )
    shared = [np.asarray(run.state.shared[name]) for name in sorted(run.state.shared)]
    return {
        "participants": [record.participants for record in run.rounds],
        "arrivals": [record.arrivals for record in run.rounds],
        "durations": [record.duration for record in run.rounds],
        "losses": [record.loss for record in run.rounds],
        "accuracy": [point.mean for point in run.accuracy],
        "sums": [float(np.abs(each).astype(np.float64).sum()) for each in shared],
        "sha256": hashlib.sha256(b"".join(each.tobytes() for each in shared)).hexdigest(),
    }


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
@pytest.mark.parametrize("case", CASES)
def test_a_run_comes_out_as_before(case: str, engine: str) -> None:
    before, now = json.loads(BEFORE.read_text())[f"{case}, {engine}"], played(case, engine)
    for name in ("participants", "arrivals", "durations"):
        assert now[name] == before[name], name
    for name in ("losses", "sums"):
        np.testing.assert_allclose(now[name], before[name], rtol=1e-4, err_msg=name)
    np.testing.assert_allclose(now["accuracy"], before["accuracy"], atol=0.01)


if __name__ == "__main__":
    engines = ("loop", "vectorised")
    found = {f"{case}, {engine}": played(case, engine) for case in CASES for engine in engines}
    print(json.dumps(found, indent=1))

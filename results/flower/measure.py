"""fedrep against srpfl on real processes of really different speed.

    OMP_NUM_THREADS=1 python results/flower/measure.py

Six SuperNodes on this machine; a node's speed is the number of times that it does its training
(never a sleep). Targets are fedrep's accuracies at each of its evaluations. Everything is written
beside this file: the two runs' records, and result.json. The machine should have nothing else to
do. With --again, result.json and the picture are made anew from the records.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import srpfl
from srpfl.cli.deploy import play_locally
from srpfl.options.config import Config
from srpfl.report.plots import metric_against_time

HERE = Path(__file__).parent
WORKPLACE = Path("runs/flower-measurement")
WORKS = [40, 40, 40, 40, 200, 1200]  # a slow node does five, a very slow one thirty times as much
COMMON = {
    "data": "digits",
    "clients": len(WORKS),
    "shards": 5,
    "head_epochs": 2,
    "body_epochs": 1,
    "lr": 0.005,
    "evaluate_every": 2,
    "seed": 0,
}
METHODS = {
    "fedrep": {"method": "fedrep", "rounds": 6},
    "srpfl": {"method": "srpfl", "rounds": 10, "start": 3, "every": 8},
}
KEPT = ("config.json", "rounds.jsonl", "evaluations.jsonl", "timing.jsonl", "events.jsonl")


def main() -> None:
    loads = {} if "--again" in sys.argv[1:] else measure()
    runs = [srpfl.Run.load(HERE / name) for name in METHODS]
    fedrep, srpfl_ = runs
    result = {
        "reached": [
            {
                "accuracy": point.mean,
                "fedrep_s": point.time,
                "srpfl_s": (time := srpfl_.time_to(point.mean)),
                "speedup": time and point.time / time,
            }
            for point in fedrep.accuracy
        ],
        "final accuracy": {run.name: run.accuracy[-1].mean for run in runs},
        "seconds per round": {
            run.name: [round(record.duration, 1) for record in run.rounds] for run in runs
        },
        "work of each node": WORKS,
        "machine": loads or json.loads((HERE / "result.json").read_text())["machine"],
    }
    (HERE / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    target = fedrep.accuracy[-1].mean
    metric_against_time(runs, path=HERE / "accuracy.png", communication=[0.0], target=target)
    print(json.dumps(result, indent=2))


def measure() -> dict[str, Any]:
    """Play both runs, and say on what."""
    loads = {}
    for name, options in METHODS.items():
        out = WORKPLACE / name
        # A measurement that was interrupted goes on where it was.
        play_locally(Config.of({**COMMON, **options}), WORKS, out)
        loads[name] = os.getloadavg()[2]  # over the last quarter of an hour
        (HERE / name).mkdir(exist_ok=True)
        for file in KEPT:
            shutil.copy(out / file, HERE / name / file)
    return {"processor": platform.machine(), "cores": os.cpu_count(), "load": loads}


if __name__ == "__main__":
    main()

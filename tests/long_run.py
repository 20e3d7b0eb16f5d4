"""A run of its own process, to be killed by a test: FOLDER CHECKPOINT_EVERY METHOD [--resume]."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import srpfl
import tiny


class Slowly(srpfl.Watcher):
    """Leaves the test time to kill."""

    def round(self, record: srpfl.runs.records.RoundRecord) -> None:
        time.sleep(0.02)


ALGORITHMS = {
    "fedrep": srpfl.FedRep(head_epochs=2, body_epochs=1),
    "scaffold": srpfl.SCAFFOLD(),
    "fedadam": srpfl.FedAdam(),
    "ditto": srpfl.Ditto(),
}

if __name__ == "__main__":
    tiny.simulate(
        algorithm=ALGORITHMS[sys.argv[3]],
        out=Path(sys.argv[1]),
        checkpoint_every=int(sys.argv[2]),
        resume="--resume" in sys.argv,
        rounds=15,
        watchers=[Slowly()],
    )

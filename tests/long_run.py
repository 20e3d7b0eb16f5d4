"""A run of its own process, to be killed by a test: FOLDER CHECKPOINT_EVERY [--resume]."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import srpfl
import tiny


class Slowly(srpfl.Watcher):
    """Leaves the test time to kill."""

    def round(self, record: srpfl.records.RoundRecord) -> None:
        time.sleep(0.02)


if __name__ == "__main__":
    tiny.simulate(
        out=Path(sys.argv[1]),
        checkpoint_every=int(sys.argv[2]),
        resume="--resume" in sys.argv,
        rounds=15,
        watchers=[Slowly()],
    )

"""TensorBoard: event files in a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from srpfl.trackers.base import Tracker


class TensorBoard(Tracker):
    """Writes event files below a folder, one folder for each run; `tensorboard --logdir FOLDER`."""

    package, extra = "tensorboard", "tensorboard"

    def __init__(self, folder: str | Path = "tensorboard") -> None:
        super().__init__()
        self.folder = Path(folder)

    def start(self, name: str, done: int) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        place = self.folder / f"{name}-seed{self.config['seed']}"
        # What a killed run had logged after its last checkpoint is played again: drop it.
        self._writer = SummaryWriter(str(place), purge_step=done + 1 if done else None)
        self._writer.add_text("config", f"```json\n{json.dumps(dict(self.config), indent=2)}\n```")

    def log(self, metrics: Mapping[str, float], round: int) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name.replace(" ", "_"), value, round)

    def finish(self) -> None:
        self._writer.close()

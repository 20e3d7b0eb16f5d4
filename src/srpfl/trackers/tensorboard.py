"""TensorBoard: event files in a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from srpfl.runs.names import file_name
from srpfl.trackers.base import Tracker, hyperparameters


class TensorBoard(Tracker):
    """Writes event files below a folder, one folder for each run; `tensorboard --logdir FOLDER`.

    The wall time of an event is the run's clock: choose the axis "Wall" to compare methods by time,
    "Step" to compare them by rounds.
    """

    package, extra = "tensorboard", "tensorboard"

    def __init__(self, folder: str | Path = "tensorboard") -> None:
        super().__init__()
        self.folder = Path(folder)

    def start(self, name: str, done: int) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        place = self.folder / file_name(f"{name}-seed{self.config['seed']}")
        # What a killed run had logged after its last checkpoint is played again: drop it.
        self._writer = SummaryWriter(str(place), purge_step=done + 1 if done else None)
        self._writer.add_text("config", f"```json\n{json.dumps(dict(self.config), indent=2)}\n```")

        self._last: dict[str, float] = {}

    def log(self, metrics: Mapping[str, float], round: int, time: float) -> None:
        self._last |= metrics
        for name, value in metrics.items():
            self._writer.add_scalar(name.replace(" ", "_"), value, round, walltime=time)

    def spread(self, name: str, values: Sequence[float], round: int, time: float) -> None:
        if values:
            self._writer.add_histogram(name, np.asarray(values), round, walltime=time)

    def finish(self) -> None:
        from torch.utils.tensorboard import summary

        writer: Any = self._writer.file_writer
        table: Any = summary.hparams  # as add_hparams does, but in this run's own file
        last = {n.replace(" ", "_"): v for n, v in self._last.items() if "/" in n or n == "time"}
        for part in table(hyperparameters(self.config), last):
            writer.add_summary(part)
        self._writer.close()

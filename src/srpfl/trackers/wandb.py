"""Weights & Biases, offline unless asked: nothing leaves the machine by accident."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from srpfl.trackers.base import Tracker


class WandB(Tracker):
    """Logs to Weights & Biases; what is kept offline can be sent later with ``wandb sync``."""

    package, extra = "wandb", "wandb"

    def __init__(
        self,
        project: str = "srpfl",
        *,
        folder: str | Path = ".",
        mode: Literal["offline", "online"] = "offline",
    ) -> None:
        super().__init__()
        self.project, self.folder, self.mode = project, Path(folder), mode

    def start(self, name: str, done: int) -> None:
        import wandb

        self.folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            mode=self.mode,
            project=self.project,
            name=f"{name}-seed{self.config['seed']}",
            dir=str(self.folder),
            config=dict(self.config),
            # Several runs of a comparison follow each other in one process.
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )

        # Curves are drawn against the run's clock, not against rounds.
        self._run.define_metric("time")
        self._run.define_metric("*", step_metric="time")

    def log(self, metrics: Mapping[str, float], round: int, time: float) -> None:
        self._run.log({**metrics, "time": time}, step=round)

    def spread(self, name: str, values: Sequence[float], round: int, time: float) -> None:
        import wandb

        if values:
            self._run.log({name: wandb.Histogram(list(values))}, step=round)

    def finish(self) -> None:
        self._run.finish()

"""Experiment trackers as watchers: they look on, and if one fails, the run continues.

Each needs its own extra: ``pip install 'srpfl[tensorboard]'``, ``[mlflow]`` or ``[wandb]``.

    srpfl.simulate(..., watchers=[TensorBoard("logs")])
    replay(Run.load("runs/first"), MLflow())        # a run that was played without
"""

from pathlib import Path

from srpfl.errors import ConfigError, unknown
from srpfl.trackers.base import Tracker, metrics_of, replay
from srpfl.trackers.mlflow import MLflow
from srpfl.trackers.tensorboard import TensorBoard
from srpfl.trackers.wandb import WandB

__all__ = ["MLflow", "TensorBoard", "Tracker", "WandB", "metrics_of", "replay", "tracker"]

NAMES = ("tensorboard", "mlflow", "wandb")


def tracker(name: str, folder: str | Path) -> Tracker:
    """A tracker by name, with its files in a folder; nothing leaves the machine.

    >>> tracker("tensorboard", "logs").folder.name
    'logs'
    """
    if name not in NAMES:
        raise unknown("tracker", name, NAMES)
    place = Path(folder)
    if name == "tensorboard":
        return TensorBoard(place)
    if name == "mlflow":
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot write to {place}: {error.strerror}") from error
        return MLflow(uri=f"sqlite:///{place / 'mlflow.db'}")
    return WandB(folder=place)

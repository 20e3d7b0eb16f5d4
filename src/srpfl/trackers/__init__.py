"""Experiment trackers as watchers: they look on, and whatever happens to them, the run goes on.

Each needs its own extra: ``pip install 'srpfl[tensorboard]'``, ``[mlflow]`` or ``[wandb]``.

    srpfl.simulate(..., watchers=[TensorBoard("logs")])
    replay(Run.load("runs/first"), MLflow())        # a run that was played without
"""

from srpfl.trackers.base import Tracker, metrics_of, replay
from srpfl.trackers.mlflow import MLflow
from srpfl.trackers.tensorboard import TensorBoard
from srpfl.trackers.wandb import WandB

__all__ = ["MLflow", "TensorBoard", "Tracker", "WandB", "metrics_of", "replay"]

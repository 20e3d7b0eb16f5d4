"""MLflow: a run in an experiment, in a database file or on a server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from srpfl.trackers.base import Tracker, flat

LONGEST = 500  # characters of a parameter that every MLflow store takes
BATCH = 100  # parameters at once
OTHERS = re.compile(r"[^\w.\-/ ]")  # characters that a metric's name cannot have there


class MLflow(Tracker):
    """Logs to MLflow; ``uri`` is a server's or a file's, such as ``sqlite:///mlflow.db``.

    Without one, MLflow's own setting counts (MLFLOW_TRACKING_URI). Timestamps are the run's clock;
    how clients differ is kept as percentiles (p10, p50, p90).
    """

    package, extra = "mlflow", "mlflow"

    def __init__(self, experiment: str = "srpfl", *, uri: str | None = None) -> None:
        super().__init__()
        self.experiment, self.uri = experiment, uri

    def start(self, name: str, done: int) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        # A client of our own: mlflow's global "active run" may be somebody else's.
        self._client = MlflowClient(tracking_uri=self.uri)
        found = self._client.get_experiment_by_name(self.experiment)
        place = found.experiment_id if found else self._client.create_experiment(self.experiment)
        run = self._client.create_run(place, run_name=f"{name}-seed{self.config['seed']}")
        self._run = run.info.run_id
        params = [
            Param(key, str(value)[:LONGEST])
            for key, value in flat(self.config).items()
            if value is not None
        ]
        for first in range(0, len(params), BATCH):
            self._client.log_batch(self._run, params=params[first : first + BATCH])

    def log(self, metrics: Mapping[str, float], round: int, time: float) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time)  # the run's clock: MLflow's axis "time" counts from the first
        self._client.log_batch(
            self._run,
            [Metric(OTHERS.sub("_", name), value, now, round) for name, value in metrics.items()],
        )

    def spread(self, name: str, values: Sequence[float], round: int, time: float) -> None:
        if not values:
            return
        parts = zip(("p10", "p50", "p90"), np.quantile(values, (0.1, 0.5, 0.9)), strict=True)
        self.log({f"{name}/{part}": float(value) for part, value in parts}, round, time)

    def finish(self) -> None:
        self._client.set_terminated(self._run)

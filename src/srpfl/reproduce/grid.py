"""Which runs make up the paper's figures, and how to come by those that are missing.

A run lives in ``OUT/FIGURE/DATASET/METHOD-seedK``. Runs are independent and resumable, so that a
figure can grow over many sittings; C never retrains anything.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from srpfl.errors import SrpflError, unknown
from srpfl.options.config import Config
from srpfl.runs.folder import CONFIG, DIVERGED, RunFolder
from srpfl.runs.run import Run
from srpfl.sweeps.plan import Planned
from srpfl.sweeps.playing import On, Watch, play
from srpfl.sweeps.work import WORKER

# Figure 3 of the paper, then the appendix's three in their order.
FIGURES: dict[str, dict[str, Any]] = {
    "fig3": {"clock": "fixed", "sample": 1.0},
    "fig4": {"clock": "dynamic", "sample": 1.0},
    "fig5": {"clock": "fixed", "sample": 0.2},
    "fig6": {"clock": "dynamic", "sample": 0.2},
}
DATASETS = ("cifar10", "cifar100", "emnist", "femnist")
# Seven trainings give nine curves: fine-tuning is another evaluation of the same run.
TRAININGS: dict[str, tuple[str, ...]] = {
    "fedavg": ("global", "personalised"),
    "flanp": ("global", "personalised"),
    "fedrep": ("personalised",),
    "srpfl": ("personalised",),
    "lg-fedavg": ("personalised",),
    "lg-srpfl": ("personalised",),
    "hf-maml": ("global",),
}
ROUNDS, START, EVERY = 150, 10, 10
# With the usual β = 0.1 HF-MAML's loss becomes NaN within a few rounds on normalised images (on
# CIFAR-10 in the first one, in float32 and client by client as well), so it learns at the rate of
# the other methods here.
MAML_BETA = 0.01
# Training points per client where there are 100 of them. A smaller population keeps as many, so
# that a trial with few clients does the same local work.
POINTS = {"cifar10": 500, "cifar100": 500}


@dataclass(frozen=True)
class Panel:
    """One data set of one figure: which methods and seeds, at which size."""

    figure: str
    dataset: str
    methods: tuple[str, ...] = tuple(TRAININGS)
    seeds: int = 1
    rounds: int = ROUNDS
    clients: int | None = None

    def __post_init__(self) -> None:
        if self.figure not in FIGURES:
            raise unknown("figure", self.figure, FIGURES)
        for method in self.methods:
            if method not in TRAININGS:
                raise unknown("training", method, TRAININGS)

    def configs(self, **more: Any) -> Iterator[Config]:
        """The runs of the panel; the first seed of all methods comes before the second."""
        for seed in range(self.seeds):
            for method in self.methods:
                yield self._config(method, seed, more)

    def _config(self, method: str, seed: int, more: dict[str, Any]) -> Config:
        config = Config(
            method=method,
            data=self.dataset,
            clients=self.clients,
            per_client=POINTS.get(self.dataset) if self.clients else None,
            rounds=self.rounds,
            seed=seed,
            every=min(EVERY, max(1, self.rounds // 15)),
            evaluations=",".join(TRAININGS[method]),
            evaluate_at=",".join(map(str, evaluated(method, self.rounds))),
            maml_beta=MAML_BETA,
            checkpoint_every=10,
            **FIGURES[self.figure],
            **more,
        )
        asked = round(config.sample * config.number("clients", 100))
        # The paper's ten; in a population too small for that, the usual tenth.
        return replace(config, start=START if asked >= 2 * START else None)


def evaluated(method: str, rounds: int) -> list[int]:
    """Densely up to round 60 for the headline pair, whose times to targets are compared."""
    step, later = (2, 10) if method in ("fedrep", "srpfl") else (5, 15)
    due = {*range(step, min(60, rounds) + 1, step), *range(60, rounds + 1, later), rounds}
    return sorted(round for round in due if round <= rounds)


def place(out: Path, figure: str, config: Config) -> Path:
    return out / figure / config.data / f"{config.method}-seed{config.seed}"


def train(
    panel: Panel,
    out: Path,
    *,
    on: On = "turn",
    workers: int | None = None,
    together: int = 1,
    watch: Watch | None = None,
    deadline: float | None = None,
    **more: Any,
) -> tuple[list[Run], int]:
    """All finished runs of a panel, and how many had to be trained (or finished) for it.

    What is missing is played as a sweep: in turn, on local processes or on Ray, up to ``together``
    runs at once. A run that diverges is a result too: its records end there, and it is not tried
    again. After the deadline (as of ``time.perf_counter``) no new run is begun.
    """
    configs = {place(out, panel.figure, config): config for config in panel.configs(**more)}
    there = {folder for folder, config in configs.items() if over(folder, config)}
    missing = [Planned(f, c, {}) for f, c in configs.items() if f not in there]
    swept = play(
        missing, out, on=on, workers=workers, together=together, watch=watch, deadline=deadline
    )
    ended = [row.folder for row in swept.rows if row.state in ("done", "diverged")]
    for folder in there.union(ended):  # also what a kill left of them
        drop_weights(folder)
    errors = [row.error for row in swept.rows if row.state == "failed"]
    if errors:
        raise SrpflError(str(errors[0]))
    runs = [finished(folder, config) for folder, config in configs.items()]
    return [run for run in runs if run is not None], len(ended)


def over(folder: Path, config: Config) -> bool:
    """Whether nothing of a run is left to play."""
    return (folder / DIVERGED).exists() or finished(folder, config) is not None


def finished(folder: Path, config: Config) -> Run | None:
    """A run that is there with all its rounds, whatever it was trained on."""
    if not (folder / CONFIG).exists():
        return None
    run, held = Run.load(folder), RunFolder(folder, say=lambda text: None).held()
    complete = len(run.rounds) == config.number("rounds", ROUNDS)
    return run if complete and held.evaluated(run.config) and run.evaluations else None


def drop_weights(folder: Path) -> None:
    """Results are records; the weights of a finished run are not kept among them, nor where it was
    played."""
    for part in ("checkpoints", "personal"):
        shutil.rmtree(folder / part, ignore_errors=True)
    (folder / WORKER).unlink(missing_ok=True)

"""Optuna chooses a learning rate and stops runs that fall behind: python examples/tune_optuna.py.

Needs Optuna: pip install optuna.
"""

from __future__ import annotations

import argparse

import optuna

import srpfl
from srpfl.runs.records import EvaluationRecord


class Prune(srpfl.Watcher):
    """Tells Optuna how far a run has come, and ends it if others were better by then."""

    def __init__(self, trial: optuna.Trial) -> None:
        self.trial = trial

    def evaluation(self, record: EvaluationRecord) -> None:
        if record.kind != "personalised":
            return
        self.trial.report(record.value, record.round)
        if self.trial.should_prune():
            raise optuna.TrialPruned


def objective(trial: optuna.Trial, rounds: int) -> float:
    rule = srpfl.SGD(lr=trial.suggest_float("lr", 1e-4, 0.3, log=True), momentum=0.5)
    run = srpfl.simulate(
        data=srpfl.data.load("digits", clients=20, partition=srpfl.data.Shards(3), seed=0),
        model=srpfl.models.MLP(64, (32,), classes=10),
        algorithm=srpfl.FedRep(head_epochs=2, body_epochs=1, rule=rule),
        participation=srpfl.Doubling(start=5, every=2),
        rounds=rounds,
        evaluate_every=2,
        watchers=[Prune(trial)],
    )
    return run.scores[-1].value


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=10)
    asked = parser.parse_args()
    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=0),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3),
    )
    study.optimize(lambda trial: objective(trial, asked.rounds), n_trials=asked.trials)
    pruned = sum(trial.state == optuna.trial.TrialState.PRUNED for trial in study.trials)
    print(f"best accuracy {study.best_value:.3f} at {study.best_params}; {pruned} stopped early")


if __name__ == "__main__":
    main()

"""Ray Tune chooses a learning rate and stops runs that fall behind: python examples/tune_ray.py.

Needs Ray Tune: pip install 'ray[tune]'.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.basic_variant import BasicVariantGenerator

import srpfl
from srpfl.engine.cluster import connected
from srpfl.runs.records import EvaluationRecord


class Tell(srpfl.Watcher):
    """Tells Ray Tune how far a run has come; it ends those that fall behind."""

    def evaluation(self, record: EvaluationRecord) -> None:
        if record.kind == "personalised":
            tune.report({"accuracy": record.value, "round": record.round})


def play(settings: dict[str, Any]) -> None:
    srpfl.simulate(
        data=srpfl.data.load("digits", clients=20, partition=srpfl.data.Shards(3), seed=0),
        model=srpfl.models.MLP(64, (32,), classes=10),
        algorithm=srpfl.FedRep(
            head_epochs=2, body_epochs=1, rule=srpfl.SGD(lr=settings["lr"], momentum=0.5)
        ),
        participation=srpfl.Doubling(start=5, every=2),
        rounds=settings["rounds"],
        evaluate_every=2,
        watchers=[Tell()],
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--at-once", type=int, default=0, help="trials; 0: as many as fit")
    asked = parser.parse_args()
    connected()
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            play,
            param_space={"lr": tune.loguniform(1e-4, 0.3), "rounds": asked.rounds},
            tune_config=tune.TuneConfig(
                metric="accuracy",
                mode="max",
                num_samples=asked.trials,
                search_alg=BasicVariantGenerator(random_state=0, max_concurrent=asked.at_once),
                scheduler=ASHAScheduler(time_attr="round", max_t=asked.rounds, grace_period=2),
            ),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        )
        found = tuner.fit()
        best = found.get_best_result()
        early = sum(result.metrics["round"] < asked.rounds for result in found)
        print(
            f"best accuracy {best.metrics['accuracy']:.3f} at lr {best.config['lr']:.4f}; "
            f"{early} stopped early"
        )


if __name__ == "__main__":
    main()

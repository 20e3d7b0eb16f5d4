"""Exam scores of pupils: regression, a client is a school, its output layer its own.

    python examples/school.py --data-dir ../shared/data

FedRep waits for everybody in every round. SRPFL is the same training with doubling participation:
it waits for the fastest tenth, then for twice as many, and so on. Both are judged by the root of
the mean squared error of the scores (1 to 70, standard deviation 12.7), so lower is better.
"""

import argparse
from pathlib import Path

import srpfl
from srpfl.report.plots import metric_against_time

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--data-dir", default="../shared/data", help="folder with school/")
parser.add_argument("--clients", type=int, default=139, help="schools (there are 139)")
parser.add_argument("--rounds", type=int, default=18)
parser.add_argument("--target-round", type=int, help="of fedrep (two thirds of the rounds)")
parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", type=Path, default=Path("runs/school"))
options = parser.parse_args()

data = srpfl.data.load(
    "school", data_dir=options.data_dir, clients=options.clients, seed=options.seed
)
runs = {}
for name, participation in {
    "fedrep": srpfl.Everyone(),
    "srpfl": srpfl.Doubling(every=max(1, options.rounds // 6)),
}.items():
    folder = options.out / name
    runs[name] = srpfl.simulate(
        name=name,
        data=data,
        model=srpfl.models.MLP(28, (32,), classes=1),
        task=srpfl.Regression(metric="rmse"),
        algorithm=srpfl.FedRep(
            personal="head", head_epochs=10, body_epochs=1, rule=srpfl.SGD(lr=0.001, momentum=0.5)
        ),
        participation=participation,
        clock=srpfl.FixedExponential(rate=1.0),
        rounds=options.rounds,
        evaluate_every=1,
        seed=options.seed,
        device=options.device,
        out=folder,
        resume=folder.exists(),  # so a second call goes on, or only draws
    )

chosen = options.target_round or max(1, options.rounds * 2 // 3)
target = next(point.mean for point in runs["fedrep"].curve() if point.round == chosen)
print(f"fedrep is {target:.2f} points off in round {chosen}; time until then:")
for name, run in runs.items():
    reached = run.time_to(target)
    print(f"  {name}: {'never' if reached is None else f'{reached:.1f}'}")
metric_against_time(list(runs.values()), path=options.out / "rmse.png", target=target)
print(options.out / "rmse.png")

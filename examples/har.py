"""What a person with a phone is doing: six activities, a client is a person, its output layer its
own; a network of convolutions over time with BatchNorm.

    python examples/har.py --data-dir ../shared/data

FedRep waits for everybody in every round. SRPFL is the same training with doubling participation:
it waits for the fastest tenth, then for twice as many, and so on. Both are judged by accuracy on
the last fifth of each person's windows of each activity, which share no sample with training.
"""

import argparse
from pathlib import Path

import srpfl
from srpfl.report.plots import metric_against_time

parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
parser.add_argument("--data-dir", default="../shared/data", help="folder with har/")
parser.add_argument("--clients", type=int, default=21, help="persons (there are 21)")
parser.add_argument("--rounds", type=int, default=12)
parser.add_argument("--target-round", type=int, help="of fedrep (two thirds of the rounds)")
parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", type=Path, default=Path("runs/har"))
options = parser.parse_args()

data = srpfl.data.load("har", data_dir=options.data_dir, clients=options.clients, seed=options.seed)
runs = {}
for name, participation in {
    "fedrep": srpfl.Everyone(),
    "srpfl": srpfl.Doubling(every=max(1, options.rounds // 6)),
}.items():
    folder = options.out / name
    runs[name] = srpfl.simulate(
        name=name,
        data=data,
        model=srpfl.models.ConvNet1d(channels=9, classes=data.classes),
        task=srpfl.Classification(),
        algorithm=srpfl.FedRep(
            personal="head",
            head_epochs=1,
            body_epochs=1,
            tuning_epochs=1,  # on the head, before a client is tested
            rule=srpfl.SGD(lr=0.03, momentum=0.5),
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
print(f"fedrep is right in {target:.1%} of all windows in round {chosen}; time until then:")
for name, run in runs.items():
    reached = run.time_to(target)
    print(f"  {name}: {'never' if reached is None else f'{reached:.1f}'}")
metric_against_time(list(runs.values()), path=options.out / "accuracy.png", target=target)
print(options.out / "accuracy.png")

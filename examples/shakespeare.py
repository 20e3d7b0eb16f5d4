"""The next character of what Shakespeare's roles say: a client is a role, its output layer its own.

    python examples/shakespeare.py --data-dir ../shared/data

FedRep waits for everybody in every round. SRPFL is the same training with doubling participation:
it waits for the fastest tenth, then for twice as many, and so on. Both are judged by the share of
characters predicted right in the last fifth of each role's text; the space, the most frequent
character, would be right 16 % of the time.
"""

import argparse
from pathlib import Path

import srpfl
from srpfl.report.plots import metric_against_time

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--data-dir", default="../shared/data", help="folder with shakespeare/")
parser.add_argument("--clients", type=int, default=20, help="roles (640 have enough to say)")
parser.add_argument("--rounds", type=int, default=12)
parser.add_argument("--target-round", type=int, help="of fedrep (two thirds of the rounds)")
parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", type=Path, default=Path("runs/shakespeare"))
options = parser.parse_args()

data = srpfl.data.load(
    "shakespeare", data_dir=options.data_dir, clients=options.clients, seed=options.seed
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
        model=srpfl.models.CharGRU(srpfl.data.characters.TOKENS),
        task=srpfl.NextToken(),
        algorithm=srpfl.FedRep(
            personal="head",
            head_epochs=1,
            body_epochs=1,
            tuning_epochs=1,  # on the head, before a client is tested
            rule=srpfl.SGD(lr=1.0, momentum=0.5),
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
print(f"fedrep predicts {target:.1%} of all characters in round {chosen}; time until then:")
for name, run in runs.items():
    reached = run.time_to(target)
    print(f"  {name}: {'never' if reached is None else f'{reached:.1f}'}")
metric_against_time(list(runs.values()), path=options.out / "accuracy.png", target=target)
print(options.out / "accuracy.png")

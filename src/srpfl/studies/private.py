"""What privacy costs under three ways of waiting: accuracy and n against ε.

    python -m srpfl.studies.private --data-dir DATA --runs runs/private --out results/privacy

FEMNIST by writer, one hidden layer, client-level privacy with noise on the sum of each round. Every
policy plays as many rounds, so every client is promised the same ε.

The norm to which updates are cut is the one with the best mean accuracy of the three policies at
ε = 4, on a seed that is not reported. That search costs privacy too, which the ε here does not
count. Beside it: SRPFL with larger first stages.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from srpfl.options.config import Config
from srpfl.options.play import play_or_resume
from srpfl.privacy.accounting import DELTA, epsilon, noise_for
from srpfl.report.drawing import DASHED, colour, panels, save
from srpfl.runs.results import Results

POLICIES = {"fedrep": "everyone", "srpfl": "doubling", "auto": "auto"}
EPSILONS = (1.0, 4.0, 8.0, float("inf"))
CLIPS = (0.1, 0.3, 1.0)
TRIAL = 100  # the seed of the search: not one of those that are reported
SEARCHED = 4.0  # ε of the search
STARTS = {"srpfl, n0 = 188": 188}  # 37 is a tenth of all, srpfl's usual one
STARTED = (1.0, 4.0)  # ε of those
OPTIONS: dict[str, Any] = {
    "data": "femnist",
    "partition": "natural",
    "clients": 376,
    "method": "fedrep",
    "model": "MLP",
    "head_epochs": 1,
    "body_epochs": 1,
    "tuning_epochs": 3,
    "rounds": 30,
    "evaluate_at": "15,30",
}
NETWORK = {"inputs": 784, "hidden": [32], "classes": 62}
LOOKS = {
    "fedrep": (colour(0), DASHED),
    "srpfl": (colour(0), "-"),
    "auto": (colour(1), "-"),
    "srpfl, n0 = 188": (colour(2), "-"),
}


def config(policy: str, wanted: float, seed: int, clip: float, **changes: Any) -> Config:
    """One run's options."""
    options = {**OPTIONS, **changes}
    noise = 0.0 if wanted == float("inf") else noise_for(wanted, int(options["rounds"]))
    chosen = {"model": NETWORK, "algorithm": {"average": f"private:{clip},{noise:.6f}"}}
    own = {"participation": POLICIES.get(policy, "doubling"), "start": STARTS.get(policy)}
    return Config.of({**options, **own, "seed": seed, "set": chosen}, source="the study of privacy")


def study(
    runs: Path,
    seeds: Sequence[int],
    epsilons: Sequence[float] = EPSILONS,
    policies: Iterable[str] = POLICIES,
    *,
    clip: float,
    **changes: Any,
) -> list[dict[str, Any]]:
    """Play what the folder does not hold yet; a row for each policy, ε and seed."""
    rows = []
    for seed, wanted, policy in product(seeds, epsilons, policies):
        chosen = config(policy, wanted, seed, clip, **changes)
        run = play_or_resume(chosen, runs / f"{policy}-{wanted:g}-clip{clip:g}-seed{seed}")
        rows.append({"policy": policy, "wanted": str(wanted), "seed": seed, **_told(run)})
        print(
            f"{policy}, ε = {wanted:g}, clip {clip:g}, seed {seed}: {rows[-1]['accuracy']:.3f}",
            flush=True,
        )
    return rows


def search(runs: Path, clips: Sequence[float] = CLIPS, **changes: Any) -> dict[float, float]:
    """The mean accuracy of all policies for each norm, on the seed of the search."""
    return {
        clip: fmean(
            row["accuracy"] for row in study(runs, [TRIAL], [SEARCHED], clip=clip, **changes)
        )
        for clip in clips
    }


def _told(run: Results) -> dict[str, Any]:
    noise = float(run.config["algorithm"]["average"].rpartition(",")[2])
    spent = epsilon(noise, len(run.rounds))
    return {
        "epsilon": spent if noise else None,
        "noise": noise,
        "accuracy": run.scores[-1].value,
        "time": run.time(0.0),
        "curve": [(score.time, score.value) for score in run.scores],
        "n": [len(record.participants) for record in run.rounds],
        "ends": [round(record.time(0.0), 4) for record in run.rounds],  # of the rounds
    }


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Accuracy against ε, and n over time for each ε."""
    wanted = list(dict.fromkeys(row["wanted"] for row in rows))
    ticks = ["none" if each == "inf" else f"{float(each):g}" for each in wanted]
    figure, axes = panels(1 + len(wanted), size=(3.2, 2.8), share_y=False)
    for policy, (ink, line) in LOOKS.items():
        mine = [row for row in rows if row["policy"] == policy]
        above = 3 if line == DASHED else 2  # what lies below it is seen through its gaps
        places = [place for place, each in enumerate(wanted) if any(_at(mine, each))]
        means = [fmean(_at(mine, wanted[place])) for place in places]
        axes[0].plot(
            *(places, means), marker="o", color=ink, linestyle=line, label=policy, zorder=above
        )
        for row in mine:
            place = wanted.index(row["wanted"])
            axes[0].plot(place, 100 * row["accuracy"], ".", color=ink, alpha=0.4)
            axes[1 + place].step(
                *(row["ends"], row["n"]),
                where="pre",
                lw=1,
                alpha=0.8,
                color=ink,
                linestyle=line,
                zorder=above,
            )
    axes[0].set_xticks(range(len(ticks)), ticks)
    axes[0].set(title="personalised accuracy (%)", xlabel=f"ε at δ = {DELTA:g}; none: no noise")
    axes[0].legend(frameon=False)
    for axis, each in zip(axes[1:], wanted, strict=True):
        shown = "no noise" if each == "inf" else f"ε = {float(each):g}"
        axis.set(
            title=f"answers waited for, {shown}",
            xlabel="simulated time",
            xscale="log",
            ylim=(0, None),
        )
    save(figure, path)


def _at(rows: Sequence[dict[str, Any]], wanted: str) -> list[float]:
    """Accuracies at an ε, in per cent."""
    return [100 * row["accuracy"] for row in rows if row["wanted"] == wanted]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-dir", help="the folder that holds FEMNIST")
    parser.add_argument("--runs", type=Path, default=Path("runs/private"))
    parser.add_argument("--out", type=Path, default=Path("results/privacy"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--clip", type=float, help="this norm, without a search for it")
    given = parser.parse_args()
    searched = {} if given.clip else search(given.runs, data_dir=given.data_dir)
    clip = given.clip or max(searched, key=lambda clip: searched[clip])
    seeds, same = range(given.seeds), {"clip": clip, "data_dir": given.data_dir}
    rows = study(given.runs, seeds, **same)
    starts = study(given.runs, seeds, STARTED, STARTS, **same)
    given.out.mkdir(parents=True, exist_ok=True)
    found = {"clip": clip, "searched": searched, "delta": DELTA, "options": OPTIONS}
    text = json.dumps({**found, "rows": rows, "starts": starts}, indent=1)
    (given.out / "privacy.json").write_text(text + "\n")
    draw([*rows, *starts], given.out / "privacy.png")


if __name__ == "__main__":
    main()

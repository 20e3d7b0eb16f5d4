"""An external check of deadlines and first n: the ratios that FedBalancer's logs have.

    python -m srpfl.studies.fedbalancer --data-dir DATA [--seeds 3] [--rounds 60]

FedBalancer (Shin et al., MobiSys 2022) published, for FEMNIST with FLASH's model of devices, the
seconds until 60, 70 and 75 % of accuracy: 100 clients a round, 5 epochs, batches of 10. Ours are
the 376 writers that DATA has, a network with one hidden layer, a larger step, and devices and
networks of DATA/devices; so what is compared is not the seconds but their ratios to "everyone".
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import srpfl
from srpfl.data import Natural, load
from srpfl.participation import Participation
from srpfl.runs.run import Run
from srpfl.studies.shootout import Line, lines

NAME, PAGE = "fedbalancer", "fedbalancer.md"
ASKED, TARGETS = 100, (0.6, 0.7, 0.75)
PUBLISHED: Mapping[str, tuple[float | None, ...]] = {
    "everyone": (273_310, None, None),
    "2T": (108_324, 186_354, 287_334),
    "first-80": (85_020, 147_111, 224_603),
    "prox-1T": (73_946, 121_183, 179_833),
}
LABELS = {
    "everyone": "everyone",
    "first-80": "first 80 %",
    "2T": "deadline at twice the mean time",
    "prox-1T": "FedProx, partial work by the mean time",
    "2T-median": "deadline at twice the median time",
    "prox-1T-median": "FedProx, partial work by the median time",
}
INTRODUCTION = """# FedBalancer's ratios

Seconds to an accuracy of the shared model, beside those of waiting for everyone; FedBalancer's
logs and ours, means over seeds ({seeds}). `python -m srpfl.studies.fedbalancer --data-dir DATA`
plays what is missing, a dash in the table; `srpfl reproduce --check results/` holds this page
against the records.

| policy | published, 60 % | ours, 60 % | ours / published |
|---|---:|---:|---:|
"""
BETWEEN = """
Their run with everyone has no time to 70 and 75 %. Beside the first 80 %:

| policy | published, 70 % | ours, 70 % | published, 75 % | ours, 75 % |
|---|---:|---:|---:|---:|
"""
EXPLAINED = """
Where the factor comes from: a ratio of times is mostly one of rounds' lengths. Waiting for everyone
takes as long as the slowest of a hundred phones, and that is {slowest:.1f} times the mean time of
an answer here ({late:.0f} % of the answers take more than twice the mean). FLASH maps all phones to
a few that were measured, so its slowest are less extreme. What its logs call a typical time is not
said with the numbers that we have: both the mean and the median are in the table. Network, step
size and writers are others than theirs too.
"""


def policies(typical: float | None) -> dict[str, tuple[Any, Participation]]:
    """By name, an algorithm and a policy; ``typical`` is the mean time of an answer."""
    rule = srpfl.SGD(lr=0.01)
    plain, prox = srpfl.FedAvg(epochs=5, rule=rule), srpfl.FedProx(epochs=5, rule=rule)
    found: dict[str, tuple[Any, Participation]] = {
        "everyone": (plain, srpfl.Everyone(sample=ASKED)),
        "first-80": (plain, srpfl.FirstN(sample=ASKED, n=80)),
        "2T-median": (plain, srpfl.TypicalDeadline(sample=ASKED, times=2.0)),
        "prox-1T-median": (prox, srpfl.TypicalDeadline(sample=ASKED, partial=True)),
    }
    if typical is not None:
        found["2T"] = plain, srpfl.Deadline(sample=ASKED, seconds=2 * typical)
        found["prox-1T"] = prox, srpfl.Deadline(sample=ASKED, seconds=typical, partial=True)
    return found


def study(data_dir: Path, out: Path, seeds: int, rounds: int) -> Iterator[Line]:
    """Play what is missing; everyone first, whose answers say what a typical time is."""
    there = {(line["policy"], line["seed"]): line for line in lines(out, NAME)}
    data = load("femnist", clients=376, partition=Natural(), data_dir=data_dir)
    devices = data_dir / "devices"
    for seed in range(seeds):
        for name in LABELS:
            if (name, seed) in there:
                continue
            typical = there[("everyone", seed)]["mean"] if name != "everyone" else None
            algorithm, policy = policies(typical)[name]
            run = srpfl.simulate(
                data=data,
                model=srpfl.models.MLP(784, (128,), classes=62),
                algorithm=algorithm,
                participation=policy,
                clock=srpfl.DeviceProfiles(
                    devices=str(devices / "phones.csv"), networks=str(devices / "networks.csv")
                ),
                rounds=rounds,
                seed=seed,
                engine="vectorised",
                evaluate_every=1,
                evaluations="global",
                progress=False,
            )
            line = there[(name, seed)] = summary(run, name, seed)
            out.mkdir(parents=True, exist_ok=True)
            with (out / f"{NAME}.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
            yield line


def summary(run: Run, policy: str, seed: int) -> Line:
    """When each target was reached, and what answers took."""
    times = [time for record in run.rounds for time in record.arrivals]
    mean = fmean(times)
    return {
        "policy": policy,
        "seed": seed,
        "seconds": [run.time_to(target) for target in TARGETS],
        "final": run.scores[-1].value,
        "rounds": len(run.rounds),
        "length": fmean(record.duration for record in run.rounds),
        "answers": fmean(len(record.participants) for record in run.rounds),
        "mean": mean,
        "late": sum(time > 2 * mean for time in times) / len(times),
    }


def build(out: Path) -> str:
    """The page."""
    found = lines(out, NAME)
    seeds = sorted({line["seed"] for line in found})
    text = INTRODUCTION.format(seeds=len(seeds))
    for name in PUBLISHED:
        first = PUBLISHED[name][0]
        assert first is not None
        theirs = first / 273_310
        for own in (name, f"{name}-median"):
            ours = ratio(found, own, "everyone", 0) if own in LABELS else None
            if own in LABELS:
                told = "– | –" if ours is None else f"{ours:.2f} | {ours / theirs:.2f}"
                text += f"| {LABELS[own]} | {theirs:.2f} | {told} |\n"
    text += BETWEEN
    for name in ("2T", "2T-median", "prox-1T", "prox-1T-median"):
        cells = []
        for place in (1, 2):
            theirs_, base = PUBLISHED[name.removesuffix("-median")][place], PUBLISHED["first-80"]
            ours = ratio(found, name, "first-80", place)
            cells += [
                f"{theirs_ / base[place]:.2f}",  # type: ignore[operator]
                "–" if ours is None else f"{ours:.2f}",
            ]
        text += f"| {LABELS[name]} | {' | '.join(cells)} |\n"
    everyone = [line for line in found if line["policy"] == "everyone"]
    return text + EXPLAINED.format(
        slowest=fmean(line["length"] / line["mean"] for line in everyone),
        late=100 * fmean(line["late"] for line in everyone),
    )


def ratio(found: list[Line], policy: str, base: str, place: int) -> float | None:
    """The mean over seeds of one policy's time to a target over another's; None where some seed
    did not get there."""
    times = {
        name: {line["seed"]: line["seconds"][place] for line in found if line["policy"] == name}
        for name in (policy, base)
    }
    pairs = [(times[policy].get(seed), time) for seed, time in times[base].items()]
    if not pairs or any(mine is None or time is None for mine, time in pairs):
        return None
    return fmean(mine / time for mine, time in pairs)


def check(out: Path) -> list[str]:
    """What is wrong with the records; nothing where there are none."""
    found = lines(out, NAME)
    page = out / PAGE
    if found and (not page.exists() or page.read_text() != build(out)):
        return [f"{page} does not follow from the records"]
    return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results/shootout"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=60)
    given = parser.parse_args()
    for line in study(given.data_dir, given.out, given.seeds, given.rounds):
        print(line["policy"], line["seed"], line["seconds"], flush=True)
    (given.out / PAGE).write_text(build(given.out))


if __name__ == "__main__":
    main()

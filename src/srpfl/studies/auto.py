"""The study of Auto: ``python -m srpfl.studies.auto linear|uneven|digits|cifar10|emnist|...``.

Runs that are there are not played again, so a study that was stopped continues where it was.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from srpfl.errors import ConfigError, SrpflError, unknown
from srpfl.studies import auto_linear, auto_networks, auto_plots
from srpfl.studies.auto_linear import Cell

LINEAR = {
    # name: (clocks, numbers of clients, costs of communication)
    "linear": (("fixed", "dynamic"), (32, 128, 1024), auto_linear.COMMUNICATIONS),
    "uneven": (("pareto", "two-groups", "equal"), (128,), (0.0, 1.0, 10.0, 100.0)),
}
DECIDED = ("method", "seed", "participation", "communication")


def main(arguments: Sequence[str] | None = None) -> None:
    """Play a part of the study, write its results and draw them."""
    parser = argparse.ArgumentParser(prog="python -m srpfl.studies.auto", description=__doc__)
    parser.add_argument("part", choices=[*LINEAR, *auto_networks.SETTINGS])
    parser.add_argument("--out", type=Path, default=Path("results/auto"))
    parser.add_argument("--runs", type=Path, default=Path("runs/auto"), help="of the networks")
    parser.add_argument("--seeds", type=int, default=10, help="how many (5 for networks is plenty)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--clients", type=int, nargs="*", help="of the linear case; all by default")
    parser.add_argument(
        "--set", action="append", default=[], metavar="OPTION=VALUE", dest="options",
        help="an option of srpfl run, for networks, such as device=cuda or rounds=100",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    try:
        if given.seeds < 1:
            raise ConfigError(f"a study needs at least one seed, not {given.seeds}")
        seeds = range(given.first_seed, given.first_seed + given.seeds)
        (_linear if given.part in LINEAR else _networks)(given, seeds)
    except SrpflError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


def _linear(given: argparse.Namespace, seeds: range) -> None:
    if given.options:
        raise ConfigError("--set is for networks: the linear case has no options")
    clocks, clients, costs = LINEAR[given.part]
    for number in given.clients or ():
        if number not in auto_linear.STARTS:
            raise unknown("number of clients", str(number), map(str, auto_linear.STARTS))
    rows = auto_linear.study(
        given.out / f"{given.part}.jsonl",
        clocks=clocks,
        clients=given.clients or clients,
        seeds=seeds,
        communications=costs,
    )
    table = auto_linear.cells(rows)
    write_cells(given.out / f"{given.part}.csv", table)
    print(json.dumps(auto_linear.verdict(table), indent=1))
    auto_plots.draw_ratios(table, given.out / f"{given.part}-ratios.png")
    auto_plots.draw_waits(rows, given.out / f"{given.part}-waits.png")


def _networks(given: argparse.Namespace, seeds: range) -> None:
    if given.clients:
        raise ConfigError("--clients is for the linear case: networks take --set clients=...")
    options = dict(_option(text) for text in given.options)
    found = auto_networks.study(given.part, given.runs, seeds=seeds, overrides=options)
    auto_networks.write(given.out / f"{given.part}.json", found)
    print(json.dumps(auto_networks.verdict(found), indent=1))
    auto_plots.draw_decisions(found, given.out / f"{given.part}.png")


def write_cells(file: Path, table: Sequence[Cell]) -> None:
    """The table of a study, one line per cell."""
    with file.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow([*Cell.__dataclass_fields__, "ratio"])
        for cell in table:
            numbers = (cell.fedrep, cell.schedule, cell.auto, cell.floor, cell.ratio)
            settings = (cell.clock, cell.clients, cell.communication, cell.target)
            writer.writerow([*settings, *(f"{number:.4g}" for number in numbers)])


def _option(text: str) -> tuple[str, Any]:
    name, given, value = text.partition("=")
    if not given:
        raise ConfigError(f"an option is set as name=value, not '{text}'")
    if name in DECIDED:
        raise ConfigError(f"the study itself decides on {name}")
    try:
        return name, json.loads(value)  # numbers, true and false
    except ValueError:
        return name, value


if __name__ == "__main__":
    main()

"""The study of Auto: ``python -m srpfl.studies.auto cells|digits|cifar10|emnist|...``.

``cells`` plays the linear case, against the best of a family in hindsight: the listed settings,
those of a file (``--settings mine.toml``), or some at random (``--draw 20 --draw-seed 7``).
Runs that are there are not played again, so a study that was stopped continues where it was.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from srpfl.errors import ConfigError, SrpflError
from srpfl.studies import auto_ceiling, auto_cells, auto_networks, auto_plots
from srpfl.studies.auto_settings import Setting, drawn, listed, read_settings
from srpfl.studies.auto_told import KNOWN, check

CELLS = "cells"
DECIDED = ("method", "seed", "participation", "communication")


def main(arguments: Sequence[str] | None = None) -> None:
    """Play a part of the study, write its results and draw them."""
    parser = argparse.ArgumentParser(prog="python -m srpfl.studies.auto", description=__doc__)
    parser.add_argument("part", choices=[CELLS, *auto_networks.SETTINGS])
    parser.add_argument("--out", type=Path, default=Path("results/auto"))
    parser.add_argument("--seeds", type=int, default=2, help="how many")
    parser.add_argument("--first-seed", type=int, default=0)
    linear = parser.add_argument_group("cells")
    linear.add_argument("--settings", type=Path, help="a TOML or JSON file of settings")
    linear.add_argument("--draw", type=int, metavar="COUNT", help="so many settings at random")
    linear.add_argument("--draw-seed", type=int, default=0)
    linear.add_argument(
        "--replays", type=int, default=1, help="of each problem, with other batches: what is luck?"
    )
    linear.add_argument("--name", help="of the file in the output folder; without .jsonl")
    linear.add_argument(
        "--also", action="append", default=[], metavar="TOLD,...",
        help=f"also play Auto that is told some of {','.join(KNOWN)}, or has other parameters, "
        "such as margin=0.1; may be repeated",
    )  # fmt: skip
    networks = parser.add_argument_group("networks")
    networks.add_argument("--runs", type=Path, default=Path("runs/auto"), help="where runs go")
    networks.add_argument(
        "--set", action="append", default=[], metavar="OPTION=VALUE", dest="options",
        help="an option of srpfl run, such as device=cuda or rounds=100",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    try:
        if given.seeds < 1:
            raise ConfigError(f"a study needs at least one seed, not {given.seeds}")
        if given.replays < 1:
            raise ConfigError(f"a problem is played at least once, not {given.replays} times")
        if given.first_seed < 0 or given.draw_seed < 0:
            raise ConfigError("seeds are numbers from 0 on")
        seeds = range(given.first_seed, given.first_seed + given.seeds)
        (_cells if given.part == CELLS else _networks)(given, seeds)
    except (SrpflError, OSError, MemoryError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


def _cells(given: argparse.Namespace, seeds: range) -> None:
    if given.options:
        raise ConfigError("--set is for networks: the linear case takes --settings")
    name, settings = _settings(given)
    known = [(), *(tuple(text.split(",")) for text in given.also)]
    for items in known:
        check(items)
    file = given.out / f"{given.name or name}.jsonl"
    rows = auto_cells.study(
        file, settings, seeds, known, lambda text: print(text, flush=True), given.replays
    )
    table = auto_cells.cells(rows)
    if not table:
        raise ConfigError(
            "in these settings the start is within every target: take less noise or more samples"
        )
    print(json.dumps(auto_cells.verdict(table), indent=1))
    print("\n".join(["Auto's time over that of ...:", *auto_cells.beside(table)]))
    print(
        "\n".join(["Auto within 1.15 of the best in hindsight:", *auto_cells.shares(rows, table)])
    )
    print("\n".join(["furthest behind the best in hindsight:", *auto_cells.weakest(table)]))
    if given.replays > 1:
        print(json.dumps(auto_ceiling.ceiling(rows), indent=1))
    auto_plots.draw_cells(table, file.with_suffix(".png"))


def _settings(given: argparse.Namespace) -> tuple[str, list[Setting]]:
    if given.settings and given.draw is not None:
        raise ConfigError("settings come from a file or at random, not both")
    if given.settings:
        return given.settings.stem, read_settings(given.settings)
    if given.draw is None:
        return "listed", listed()
    if given.draw < 1:
        raise ConfigError(f"at least one setting must be drawn, not {given.draw}")
    return f"drawn-{given.draw_seed}", drawn(given.draw, given.draw_seed)


def _networks(given: argparse.Namespace, seeds: range) -> None:
    if given.settings or given.draw is not None or given.also or given.replays > 1:
        raise ConfigError(
            "--settings, --draw, --also and --replays are for cells: networks take --set"
        )
    options = dict(_option(text) for text in given.options)
    found = auto_networks.study(given.part, given.runs, seeds=seeds, overrides=options)
    auto_networks.write(given.out / f"{given.part}.json", found)
    print(json.dumps(auto_networks.verdict(found), indent=1))
    auto_plots.draw_decisions(found, given.out / f"{given.part}.png")


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

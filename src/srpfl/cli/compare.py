"""srpfl compare: methods side by side."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srpfl.cli.options import with_config

if TYPE_CHECKING:
    from srpfl.comparison import Comparison
    from srpfl.run import Run

COSTS = (0.0, 10.0, 100.0)


@with_config
def compare(
    what: Annotated[
        list[str] | None,
        typer.Argument(help="names of methods to run, or folders of runs to read"),
    ] = None,
    seeds: Annotated[int, typer.Option(help="how many seeds, beginning with --seed")] = 1,
    target: Annotated[
        float | None,
        typer.Option(help="accuracy to reach (default: 95 % of the best that all runs reached)"),
    ] = None,
    costs: Annotated[str, typer.Option(help="values of C to show")] = "0,10,100",
    config: Annotated[Path | None, typer.Option(help="TOML file with options")] = None,
    out: Annotated[Path, typer.Option(help="folder for the runs and the plot")] = Path(
        "runs/compare"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
    quiet: Annotated[bool, typer.Option(help="no progress line")] = False,
    *,
    given: dict[str, Any],
) -> None:
    """Compare methods, or runs that are there already: time to a common accuracy.

    Runs that the output folder already holds are not trained again.

    Examples:

      srpfl compare fedrep srpfl --data digits --rounds 60 --seeds 3

      srpfl compare runs/first runs/second --target 0.8
    """
    from srpfl.comparison import compare as side_by_side
    from srpfl.config import Config
    from srpfl.errors import ConfigError
    from srpfl.folder import CONFIG
    from srpfl.methods import METHODS
    from srpfl.report import find_runs
    from srpfl.report.plots import accuracy_against_time
    from srpfl.run import Run

    if seeds < 1:
        raise ConfigError(f"there must be at least one seed, not {seeds}")
    communication = numbers(costs)
    names = list(dict.fromkeys(what or ["fedrep", "srpfl"]))
    runs: list[Run] = []
    for name in names:
        # A folder that happens to be called like a method is meant as the method.
        if Path(name).is_dir() and (name not in METHODS or (Path(name) / CONFIG).exists()):
            runs += [Run.load(folder) for folder in find_runs([Path(name)])]
            continue
        values = {**given, "method": name}
        chosen = Config.of(values) if config is None else Config.from_toml(config, values)
        runs += trained(chosen, seeds, out, quiet=quiet)
    if real := all(run.real for run in runs):
        communication = [0.0]  # it is in the real times already
    result = side_by_side(runs, communication=communication, target=target)
    picture = out / "accuracy.png"
    accuracy_against_time(runs, path=picture, communication=communication, target=result.target)
    if as_json:
        print(json.dumps({**dataclasses.asdict(result), "plot": str(picture)}))
    else:
        show(result, picture, costs=communication, real=real)


def trained(chosen: Any, seeds: int, out: Path, *, quiet: bool) -> list[Run]:
    """One method's runs, each in a folder of its own."""
    from srpfl.cli.play import play_or_resume

    configs = [dataclasses.replace(chosen, seed=chosen.seed + extra) for extra in range(seeds)]
    return [
        play_or_resume(config, out / f"{config.method}-seed{config.seed}", quiet=quiet)
        for config in configs
    ]


def numbers(text: str) -> list[float]:
    """Values of C from the command line."""
    from srpfl.clock.exponential import check_communication
    from srpfl.errors import ConfigError

    try:
        costs = [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"cannot read '{text}': write numbers such as 0,10,100") from None
    for cost in costs:
        check_communication(cost)
    return costs


def show(
    result: Comparison, picture: Path, *, costs: Sequence[float] = COSTS, real: bool = False
) -> None:
    """Print a comparison as a table."""
    from rich.console import Console
    from rich.table import Table

    noun = "time" if real else "simulated time"
    table = Table(title=f"{noun} to {100 * result.target:.1f} % accuracy")
    table.add_column("method")
    table.add_column("final\naccuracy", justify="right")
    for cost in costs:
        table.add_column("seconds" if real else f"C = {cost:g}", justify="right")
    for cost in costs:
        table.add_column("speed-up" if real else f"speed-up\nC = {cost:g}", justify="right")
    for row in result.rows:
        table.add_row(
            row.method,
            f"{100 * row.accuracy:.1f} %",
            *(
                _number(row.time_to_target[cost], "not reached")
                if cost in row.time_to_target
                else "n/a"  # its policy looks at C: it would have been another run
                for cost in costs
            ),
            *(_number(row.speedup.get(cost), "", "x") for cost in costs),
        )
    console = Console()
    console.print(table)
    console.print(f"plot: {picture}", highlight=False, soft_wrap=True)


def _number(value: float | None, missing: str, unit: str = "") -> str:
    return missing if value is None else f"{value:.1f}{unit}"

"""srpfl compare: methods side by side."""

from __future__ import annotations

import dataclasses
import json
import shlex
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srpfl.cli.options import with_config
from srpfl.cli.words import fitted

if TYPE_CHECKING:
    from rich.table import Table

    from srpfl.runs.comparison import Comparison
    from srpfl.runs.metric import Metric
    from srpfl.runs.results import Results
    from srpfl.runs.run import Run

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
        typer.Option(
            help="accuracy, or value of the task's metric, to reach (default: 5 % short of the "
            "best that the baseline and its adaptive twin both reached)"
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="method that speed-ups are over (default: the one of a pair that waits for "
            "everyone, such as fedrep of fedrep and srpfl)"
        ),
    ] = None,
    costs: Annotated[str, typer.Option(help="values of C to show")] = "0,10,100",
    config: Annotated[
        Path | None, typer.Option(help="TOML file with options, or a run's config.json")
    ] = None,
    out: Annotated[Path, typer.Option(help="folder for the runs and the plot")] = Path(
        "runs/compare"
    ),
    fairness: Annotated[
        bool, typer.Option(help="also show how the slowest and the worst-off clients fare")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="file for the plot (default: one of its own in the output folder)"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
    quiet: Annotated[bool, typer.Option(help="no progress line")] = False,
    *,
    given: dict[str, Any],
) -> None:
    """Compare methods, or runs that are there already: how soon is each as good?

    It shows the time to a common accuracy, or to a common value of the task's metric. Runs that the
    output folder already holds are not trained again.

    Examples:

      srpfl compare fedrep srpfl --data digits --rounds 60 --seeds 3

      srpfl compare runs/first runs/second --target 0.8
    """
    from srpfl.errors import ConfigError
    from srpfl.options.config import Config
    from srpfl.options.methods import METHODS
    from srpfl.report.find import find_runs, runs_in
    from srpfl.runs.comparison import compare as side_by_side
    from srpfl.runs.folder import CONFIG
    from srpfl.runs.run import Run

    if seeds < 1:
        raise ConfigError(f"there must be at least one seed, not {seeds}")
    communication = numbers(costs)
    names = list(dict.fromkeys(what or ["fedrep", "srpfl"]))
    runs: list[Run] = []
    folders: list[str] = []  # what a report would be made of
    for name in names:
        # A folder that happens to be called like a method is meant as the method.
        if Path(name).is_dir() and (name not in METHODS or (Path(name) / CONFIG).exists()):
            inside = runs_in(Path(name))
            runs += [Run.load(folder) for folder in inside]
            folders += [name] if inside else []  # runs/* also names folders of pictures
            continue
        if name not in METHODS and Path(name).name != name:
            find_runs([name])  # meant as a folder: it says that there is no run
        values = {**given, "method": name}
        chosen = Config.of(values) if config is None else Config.from_file(config, values)
        runs += trained(chosen, seeds, out, quiet=quiet)
        folders.append(str(out))
    if not runs:
        find_runs(names)  # which says where there is none
    if all(run.real for run in runs):
        communication = [0.0]  # it is in the real times already
    result = side_by_side(runs, communication=communication, target=target, baseline=baseline)
    picture = plot or out / picture_name(result, runs)
    draw(runs, result, picture, communication)
    if as_json:
        print(told(result, picture))
    else:
        show(result, picture, costs=communication, folders=list(dict.fromkeys(folders)),
             fairness=fairness)  # fmt: skip


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


def picture_name(result: Comparison, runs: Sequence[Results]) -> str:
    """The file of a comparison's plot. The end of the name stands for the runs, the target and
    the baseline: another comparison does not write over it."""
    from srpfl.runs.names import file_name

    named = "-".join(dict.fromkeys(run.name for run in runs))
    what = [[run.config, len(run.rounds)] for run in runs]
    told = json.dumps([what, result.target, result.baseline], sort_keys=True, default=str)
    stem = file_name(f"{result.metric}-{named}".replace(" ", "-"))
    return f"{stem[:60]}-{zlib.crc32(told.encode()):08x}.png"


def draw(
    runs: Sequence[Results], result: Comparison, path: Path, costs: Sequence[float] = COSTS
) -> None:
    """The picture of a comparison: the metric against time, and the speed-up against the target."""
    from srpfl.report.plots import comparison

    comparison(runs, path=path, communication=costs, target=result.target, baseline=result.baseline)


def told(result: Comparison, picture: Path) -> str:
    from srpfl.runs.verdict import verdict

    told = {**dataclasses.asdict(result), "verdict": verdict(result), "plot": str(picture)}
    return json.dumps(told)


def show(
    result: Comparison,
    picture: Path,
    *,
    costs: Sequence[float] = COSTS,
    folders: Sequence[str] = (),
    fairness: bool = False,
) -> None:
    """Print a comparison: two tables that fit a narrow terminal, a verdict, what to do next."""
    from rich.console import Console
    from rich.table import Table

    from srpfl.runs.metric import Metric
    from srpfl.runs.verdict import number, value, verdict

    metric = Metric(result.metric, result.higher_is_better)
    noun = "time" if result.real else "simulated time"
    console = Console(highlight=False, markup=False)  # names are those of others
    times = Table(title=f"{noun} to {metric.told(result.target)}", title_justify="left")
    gains = Table(title=f"speed-up over {result.baseline}", title_justify="left")
    times.add_column("method", overflow="fold")
    gains.add_column("method", overflow="fold")
    times.add_column(f"final\n{metric.title}", justify="right", no_wrap=True)
    for cost in costs:
        times.add_column("seconds" if result.real else f"C = {cost:g}", justify="right")
        gains.add_column("" if result.real else f"C = {cost:g}", justify="right")
    for row in result.rows:
        times.add_row(
            row.method,
            value(metric, row.final, row.final_spread),
            *(
                number(row.time_to_target[cost], row.time_spread[cost], "not reached")
                if cost in row.time_to_target
                else "n/a"  # its policy looks at C: it would have been another run
                for cost in costs
            ),
        )
        if row.method != result.baseline:
            told = [(row.speedup.get(cost), row.speedup_spread.get(cost)) for cost in costs]
            gains.add_row(row.method, *(number(mean, spread, "-", "x") for mean, spread in told))
    console.print(times)
    if gains.rows:
        console.print(gains)
    if fairness:
        console.print(_behind(result, metric))
    seeds = max(len(row.seeds) for row in result.rows)
    notes = [f"target: {result.target_origin}"] if result.target_origin != "given" else []
    notes += ["± is the standard deviation over seeds"] if seeds > 1 else []
    if seeds > 1 and gains.rows:
        notes.append("a speed-up is the ratio of mean times, its ± that of the ratios seed by seed")
    if notes:
        console.print(fitted("; ".join(notes), console.width), style="dim")
    if result.caution:
        console.print(fitted(f"note: {result.caution}", console.width), style="yellow")
    if sentence := verdict(result):
        console.print(f"\n{fitted(sentence, console.width)}\n", style="bold")
    console.print(f"plot: {picture}", soft_wrap=True)
    if folders:
        console.print(f"next: srpfl report {shlex.join(folders)} --open", soft_wrap=True)


def _behind(result: Comparison, metric: Metric) -> Table:
    from rich.table import Table

    table = Table(title=f"{metric.title} of some clients", title_justify="left")
    table.add_column("method", overflow="fold")
    for name in ("slower\nhalf", "slowest\ntenth", "worst\ntenth", "never\nheard"):
        table.add_column(name, justify="right")
    for row in result.rows:
        values = (row.slower_half, row.slowest_tenth, row.worst_tenth, row.never_heard)
        table.add_row(row.method, *("-" if v is None else metric.shown(v) for v in values))
    return table

"""`srpfl linear`: Algorithm 2, FedRep and SRPFL side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from srpfl.clock import Clock
    from srpfl.linear import Pair

COMMUNICATIONS = (0.0, 10.0, 100.0)  # those that the paper plots


def linear(
    clients: Annotated[int, typer.Option(help="N, the clients that a round asks.")] = 128,
    start: Annotated[int, typer.Option(help="n0, the participants of the first stage.")] = 4,
    dim: Annotated[int, typer.Option(help="d, the dimension of the data.")] = 20,
    rank: Annotated[int, typer.Option(help="k, the dimension of the representation.")] = 2,
    samples: Annotated[int, typer.Option(help="m, fresh samples per client and round.")] = 20,
    noise: Annotated[float, typer.Option(help="σ, the noise of the labels.")] = 1.0,
    eta: Annotated[float, typer.Option(help="η, the step size.")] = 0.1,
    every: Annotated[int, typer.Option(help="Rounds until n doubles.")] = 20,
    rounds: Annotated[int, typer.Option(help="Rounds of each run.")] = 400,
    communication: Annotated[float, typer.Option(help="C, the cost of a round.")] = 0.0,
    clock: Annotated[
        Literal["iid", "fixed", "dynamic"], typer.Option(help="How clients' times are drawn.")
    ] = "iid",
    population: Annotated[
        int | None, typer.Option(help="M, from which a round samples its N; N by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    seeds: Annotated[int, typer.Option(help="Average over so many seeds.")] = 1,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the distance against time into this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Distance to the true representation against simulated time, for FedRep and for SRPFL.

    Data are drawn from the linear model of the analysis, again in every round. The target is 1.2
    times FedRep's floor, and a floor is the mean distance of the last 50 rounds.

    Example: srpfl linear --clients 128 --start 4 --every 20 --rounds 400 --plot distance.png
    """
    from rich.console import Console
    from rich.progress import Progress

    from srpfl.clock import DynamicExponential, FixedExponential, IIDExponential
    from srpfl.errors import ConfigError
    from srpfl.linear import Problem, compare
    from srpfl.linear.study import summary

    if seeds < 1:
        raise ConfigError(f"seeds must be at least 1, not {seeds}")
    if population is not None and population < clients:
        raise ConfigError(f"population must be at least clients = {clients}, not {population}")
    if plot is not None:
        from srpfl.report.drawing import check_file

        check_file(plot)
    clocks: dict[str, Callable[..., Clock]] = {
        "iid": IIDExponential,
        "fixed": FixedExponential,
        "dynamic": DynamicExponential,
    }
    speeds = clocks[clock](communication=communication)

    def pair(seed: int, after_round: Callable[[], None]) -> Pair:
        problem = Problem(
            clients=population or clients,
            dim=dim,
            rank=rank,
            samples=samples,
            noise=noise,
            seed=seed,
        )
        return compare(
            problem,
            clients=clients,
            start=start,
            every=every,
            clock=speeds,
            eta=eta,
            rounds=rounds,
            after_round=after_round,
        )

    errors = Console(stderr=True)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("rounds", total=2 * rounds * seeds)
        pairs = [pair(s, lambda: progress.advance(task)) for s in range(seed, seed + seeds)]

    if as_json:
        typer.echo(json.dumps(summary(pairs, communication)))
    else:
        _show(pairs, communication, eta)
    if plot is not None:
        from srpfl.linear.plots import draw_distance
        from srpfl.report.units import UNITS

        unit = UNITS[type(speeds).__name__]
        draw_distance(pairs, sorted({communication, 0.0, 10.0}), plot, unit=unit)


def _also(communication: float) -> list[float]:
    """The C asked for and the paper's: one run serves them all."""
    return sorted({communication, *COMMUNICATIONS})


def _show(pairs: Sequence[Pair], communication: float, eta: float) -> None:
    from statistics import fmean

    from rich.console import Console
    from rich.table import Table

    from srpfl.linear.study import mean_times, spread_times
    from srpfl.theory import contraction_parameter

    def shown(value: float | None, spread: float) -> str:
        if value is None:
            return "not reached"
        return f"{value:.1f} ± {spread:.1f}" if len(pairs) > 1 else f"{value:.1f}"

    console = Console()
    table = Table("C", "FedRep's time to target", "SRPFL's", "speed-up")
    for column in table.columns:
        column.justify = "right"
    losing = []
    for cost in _also(communication):
        fedrep, srpfl = mean_times(pairs, cost)
        speedup = "–" if fedrep is None or not srpfl else f"{fedrep / srpfl:.2f}"
        spreads = spread_times(pairs, cost)
        table.add_row(f"{cost:g}", shown(fedrep, spreads[0]), shown(srpfl, spreads[1]), speedup)
        if fedrep is not None and (srpfl is None or srpfl > fedrep):
            losing.append(f"{cost:g}")
    console.print(table)
    if losing:
        console.print(f"At C = {' and '.join(losing)} this schedule loses: its many early rounds "
                      "cost more in communication than they save in waiting.")  # fmt: skip
    floors = fmean(p.fedrep.floor for p in pairs), fmean(p.srpfl.floor for p in pairs)
    target = fmean(p.target for p in pairs)
    console.print(f"Floors: FedRep {floors[0]:.5f}, SRPFL {floors[1]:.5f}; target {target:.5f}.")
    for name, runs in (("FedRep", [p.fedrep for p in pairs]), ("SRPFL", [p.srpfl for p in pairs])):
        low, high = min(r.sigma_min for r in runs), max(r.sigma_max for r in runs)
        start = max(r.initial_distance for r in runs)
        a = contraction_parameter(eta, initial_distance=start, sigma_min=low)
        console.print(
            f"{name}: σmin = {low:.3f} and σmax = {high:.3f} over the participants actually used "
            f"(the theory means all subsets), hence a = {a:.4f}, η ≤ {1 / (8 * high**2):.3f}."
        )

"""`srpfl theory`: the schedule that the analysis asks for, and what it saves."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from srpfl.theory import Assumptions, Gain


def theory(
    clients: Annotated[int, typer.Option(help="N, the clients that a round asks.")] = 2**17,
    start: Annotated[int, typer.Option(help="n0, the participants of the first stage.")] = 4,
    a: Annotated[float, typer.Option("--a", help="a = η·E0·σmin²/2, at most 1/4.")] = 0.25,
    c: Annotated[
        float, typer.Option("--c", help="Cost of communication, in mean client times.")
    ] = 0.0,
    c_hat: Annotated[
        float, typer.Option(help="How close the target is to the best: above 1, below √2.")
    ] = 1.4,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the speed-up against N into this file.")
    ] = None,
    descent: Annotated[
        Path | None, typer.Option(help="Draw the distance against time into this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """The stages of the analysis, their rounds and expected times, and the speed-up over FedRep.

    Times are in units of 1/λ, the mean time of a client.

    Example: srpfl theory --clients 131072 --start 4 --a 0.25 --c 0 --c-hat 1.4 --plot speedup.png
    """
    from srpfl.theory import Assumptions, compare

    setting = Assumptions(clients=clients, start=start, a=a, c=c, c_hat=c_hat)
    for file in filter(None, (plot, descent)):
        from srpfl.report.drawing import check_file

        check_file(file)
    answer = compare(setting)
    if as_json:
        typer.echo(json.dumps(asdict(answer) | {"speedup": answer.speedup}, indent=2))
    else:
        _show(setting, answer)
    if plot is not None:
        from srpfl.theory.plots import draw_speedup

        draw_speedup(setting, plot)
    if descent is not None:
        from srpfl.theory.plots import draw_descent

        draw_descent(setting, descent)


def _show(setting: Assumptions, answer: Gain) -> None:
    from rich.console import Console
    from rich.table import Table

    from srpfl.theory import lemma_rounds

    table = Table("n", "rounds", "lemma's bound", "distance after", "expected time")
    for column in table.columns:
        column.justify = "right"
    for stage, bound in zip(answer.stages, lemma_rounds(setting), strict=True):
        table.add_row(
            f"{stage.n}",
            f"{stage.rounds}",
            "–" if bound is None else f"{bound:.1f}",
            f"{stage.distance:.4f}",
            f"{stage.time:.3f}",
        )
    console = Console()
    console.print(table)
    for name, cost in (("SRPFL", answer.srpfl), ("FedRep", answer.fedrep)):
        console.print(f"{name} reaches ε = {answer.epsilon:.4f} at {cost.time:.2f}, "
                      f"after {cost.rounds} rounds.")  # fmt: skip
    console.print(f"Speed-up: {answer.speedup:.2f}. Theorem 2 bounds the inverse, asymptotically, "
                  f"by {answer.bound:.2f}; here it is {1 / answer.speedup:.2f}.")  # fmt: skip

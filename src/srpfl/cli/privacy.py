"""srpfl privacy: what private runs have spent, and how much noise a promise needs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from srpfl.errors import ConfigError


def privacy(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="folders of runs, or folders that hold several")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="say how much noise this ε needs, with --rounds")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="rounds that are to be played")] = None,
    delta: Annotated[float, typer.Option(help="δ, far below one over the clients")] = 1e-5,
) -> None:
    """Say what private runs have cost their clients, or how much noise a promise needs.

    Examples:

      srpfl privacy --epsilon 8 --rounds 30

      srpfl run --method fedrep --set average=private:0.3,3.29 --rounds 30 --out runs/private

      srpfl privacy runs/private
    """
    from srpfl.privacy.accounting import noise_for, spent
    from srpfl.report import find_runs
    from srpfl.runs.run import Run

    if epsilon is not None:
        if rounds is None or rounds < 1:
            raise ConfigError("how much noise depends on the rounds: add --rounds, such as 30")
        noise = math.ceil(1e4 * noise_for(epsilon, rounds, delta)) / 1e4  # never too little
        print(f"ε = {epsilon:g} at δ = {delta:g} over {rounds} rounds: noise {noise:.4f}")
        print(f"srpfl run --set average=private:1.0,{noise:.4f} --rounds {rounds}")
        return
    if not runs:
        raise ConfigError("name a run's folder, or give --epsilon and --rounds")
    for folder in find_runs(runs):
        found = spent(Run.load(folder), delta)
        print(
            f"{folder}: ε = {found.epsilon:.3g} at δ = {delta:g} after {found.rounds} rounds; "
            f"{found.heard:.3g} for the client that counted most often ({found.most} times)"
        )

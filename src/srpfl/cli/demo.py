"""srpfl demo: fedrep against srpfl on the embedded digits, in under a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(help="folder for the runs and the plot")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="seed of everything random")] = 0,
    rounds: Annotated[int, typer.Option(help="rounds to play")] = 80,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
) -> None:
    """Compare waiting for everyone (fedrep) with not waiting for stragglers (srpfl).

    Fifty simulated clients share scikit-learn's handwritten digits, three classes each; their
    speeds are exponential. A second call reads the runs that are there.

    Example:

      srpfl demo
    """
    from srpfl.cli.compare import COSTS, draw, show, told, trained
    from srpfl.options.config import Config
    from srpfl.runs.comparison import compare

    configs = [
        Config(method=name, data="digits", seed=seed, rounds=rounds) for name in ("fedrep", "srpfl")
    ]
    runs = [run for config in configs for run in trained(config, 1, out, quiet=False)]
    result = compare(runs, communication=COSTS)
    picture = out / "accuracy.png"
    draw(runs, result, picture)
    if as_json:
        print(told(result, picture))
    else:
        show(result, picture, folders=[str(out)])

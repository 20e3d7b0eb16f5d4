"""srpfl run: play one run."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from srpfl.cli.options import with_config


@with_config
def run(
    config: Annotated[
        Path | None, typer.Argument(help="TOML file with the same names as the options")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="folder to keep the run in (default: a new one in runs/)")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="go on with the run in this folder")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
    quiet: Annotated[bool, typer.Option(help="no progress line")] = False,
    *,
    given: dict[str, Any],
) -> None:
    """Play one run and keep its records.

    Examples:

      srpfl run --method srpfl --data digits --rounds 30 --seed 0 --out runs/first

      srpfl run experiment.toml --seed 1

      srpfl run --resume runs/first
    """
    from srpfl.cli.play import new_folder, play
    from srpfl.config import Config
    from srpfl.errors import ConfigError
    from srpfl.folder import CONFIG, RunFolder

    if resume is not None:
        if given or config is not None or out is not None:
            raise ConfigError("--resume goes on with a run as it was: it takes no other options")
        options = RunFolder(resume).config().get("options")
        if not isinstance(options, dict):
            raise ConfigError(f"{resume} was not started by this command: resume it from Python")
        chosen, folder = Config.of(options, f"{resume}/config.json"), resume
    else:
        chosen = Config.of(given) if config is None else Config.from_toml(config, given)
        folder = out or new_folder(chosen)
    try:
        result = play(chosen, folder, resume=resume is not None, quiet=quiet)
    except KeyboardInterrupt:
        if (folder / CONFIG).exists():
            print(f"go on with: srpfl run --resume {shlex.quote(str(folder))}", file=sys.stderr)
        raise
    if as_json:
        print(json.dumps(summary(result, folder)))
    else:
        _print(result, folder)


def summary(run: Any, folder: Path | None) -> dict[str, Any]:
    """A run's result as JSON."""
    final = run.accuracy[-1] if run.accuracy else None
    cost = run.communication if run.config["sees_communication"] else 0.0
    return {
        "method": run.name,
        "seed": run.config["seed"],
        "rounds": len(run.rounds),
        "accuracy": final.mean if final else None,
        "kind": run.headline,
        "time": run.time(cost),
        "communication": run.communication,
        "participants": [record.participants for record in run.rounds],
        "evaluations": [
            {"round": e.round, "kind": e.kind, "time": e.time(cost), "accuracy": e.accuracy}
            for e in run.evaluations
        ],
        "clients": list(final.clients) if final else None,
        "out": str(folder) if folder else None,
    }


def _print(run: Any, folder: Path) -> None:
    from rich.console import Console

    final = f"{100 * run.accuracy[-1].mean:.1f} %" if run.accuracy else "not evaluated"
    Console().print(
        f"[bold]{run.name}[/bold]: {run.headline} accuracy {final} after {len(run.rounds)} rounds; "
        f"simulated time {run.time():.1f} (C = {run.communication:g})\nkept in {folder}",
        highlight=False,
        soft_wrap=True,
    )

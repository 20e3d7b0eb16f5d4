"""srpfl run: play one run."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srpfl.cli.options import with_config

if TYPE_CHECKING:
    from srpfl.options.config import Config
    from srpfl.runs.run import Run

FILE = "TOML file with the same names as the options, or a run's config.json"


@with_config
def run(
    file: Annotated[Path | None, typer.Argument(help=FILE, metavar="CONFIG")] = None,
    config: Annotated[Path | None, typer.Option(help=f"{FILE}: another way to name it")] = None,
    out: Annotated[
        Path | None, typer.Option(help="folder to keep the run in (default: a new one in runs/)")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="continue the run in this folder; with --rounds also beyond its end"),
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="run the code of others that a run's config.json names")
    ] = False,
    track: Annotated[
        list[str] | None,
        typer.Option(help="also log to tensorboard, mlflow or wandb (offline); can be repeated"),
    ] = None,
    track_dir: Annotated[Path, typer.Option(help="folder for what is logged")] = Path("tracking"),
    sync: Annotated[
        bool, typer.Option(help="wait for the disk, so that a loss of power costs seconds")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
    quiet: Annotated[bool, typer.Option(help="no progress line")] = False,
    *,
    given: dict[str, Any],
) -> None:
    """Play one run and keep its records.

    Stop it whenever you like: --resume continues it, exactly as if it had not been stopped.

    Examples:

      srpfl run --method srpfl --data digits --rounds 30 --seed 0 --out runs/first

      srpfl run experiment.toml --seed 1

      srpfl run --config runs/first/config.json --seed 1

      srpfl run --model mine:net --algorithm mine:Ditto --set mu=0.1

      srpfl run --resume runs/first
    """
    from srpfl.cli.play import new_folder, play
    from srpfl.errors import ConfigError
    from srpfl.options.config import Config
    from srpfl.runs.folder import CONFIG
    from srpfl.trackers import tracker

    if file is not None and config is not None:
        raise ConfigError(f"there is one file of options, not two: {file} or {config}")
    options = file or config
    if resume is not None:
        if options is not None or out is not None:
            raise ConfigError(OTHER_OPTIONS)
        chosen, folder = _held(resume, given, trust=trust), resume
    else:
        chosen = (
            Config.of(given) if options is None else Config.from_file(options, given, trust=trust)
        )
        folder = out or new_folder(chosen)
    watchers = [tracker(name, track_dir) for name in track or []]
    try:
        result = play(
            chosen, folder, resume=resume is not None, sync=sync, quiet=quiet, watchers=watchers
        )
    except KeyboardInterrupt:
        if (folder / CONFIG).exists():
            trusted = " --trust" if chosen.own else ""
            again = f"srpfl run --resume {shlex.quote(str(folder))}{trusted}"
            print(f"continue with: {again}", file=sys.stderr)
        raise
    if as_json:
        print(json.dumps(summary(result, folder)))
    else:
        _print(result, folder)


OTHER_OPTIONS = "--resume continues a run as it was: it takes no other options than --rounds"


def _held(folder: Path, given: Mapping[str, Any], *, trust: bool) -> Config:
    """The options of a run to continue. Code that its folder names can be named again, to say that
    it is meant."""
    from srpfl.errors import ConfigError
    from srpfl.options.choices import rounds_per_stage
    from srpfl.options.config import Config
    from srpfl.runs.folder import RunFolder

    held = RunFolder(folder).config()
    chosen = Config.from_run(held, f"{folder}/config.json", given, trust=trust)
    if any(choice != "rounds" and chosen.own.get(choice) is None for choice in given):
        raise ConfigError(OTHER_OPTIONS)
    before = Config.from_run(held, f"{folder}/config.json", {}, trust=True)
    if replace(chosen, rounds=before.rounds) != before:
        raise ConfigError(OTHER_OPTIONS)
    if chosen.rounds != before.rounds:
        # A short run has short stages; a longer one keeps those that it began with.
        chosen = replace(chosen, every=rounds_per_stage(before))
    return chosen


def summary(run: Run, folder: Path | None) -> dict[str, Any]:
    """A run's result as JSON; a metric that is an accuracy goes by that name too.

    "time" is the run's own, with communication; "computing" is the same without.
    """
    final = run.curve()[-1] if run.curve() else None
    cost = run.communication

    def judged(value: float | None) -> dict[str, float | None]:
        return {"value": value, **({"accuracy": value} if run.metric == "accuracy" else {})}

    return {
        "method": run.name,
        "seed": run.config["seed"],
        "rounds": len(run.rounds),
        "metric": run.metric,
        **judged(final.mean if final else None),
        "kind": run.headline,
        "time": run.time(),
        "computing": run.rounds[-1].computing if run.rounds else 0.0,
        "communication": run.communication,
        "participants": [record.participants for record in run.rounds],
        "evaluations": [
            {
                "round": e.round,
                "kind": e.kind,
                "time": e.time(cost),
                "computing": e.computing,
                **judged(e.value),
            }
            for e in run.evaluations
        ],
        "clients": list(final.clients) if final else None,
        "out": str(folder) if folder else None,
    }


def _print(run: Run, folder: Path) -> None:
    from rich.console import Console

    from srpfl.cli.words import literal
    from srpfl.runs.metric import shown

    curve = run.curve()
    metric = literal(run.metric)
    final = shown(run.metric, curve[-1].mean) if curve else "not evaluated"
    if curve and curve[-1].error:
        final += f" (standard error {shown(run.metric, curve[-1].error)})"
    rounds = "round" if len(run.rounds) == 1 else "rounds"
    Console().print(
        f"[bold]{literal(run.name)}[/bold]: {run.headline} {metric} {final} after "
        f"{len(run.rounds)} {rounds}; simulated time {run.time():.1f} (C = {run.communication:g})\n"
        f"kept in {literal(folder)}\n"
        f"next: srpfl report {literal(shlex.quote(str(folder)))}",
        highlight=False,
        soft_wrap=True,
    )

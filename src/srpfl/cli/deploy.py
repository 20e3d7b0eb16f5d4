"""srpfl deploy: the same run on real processes, by Flower."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srpfl.cli.deploy_operate import add_to
from srpfl.cli.group import Group
from srpfl.cli.options import with_config

if TYPE_CHECKING:
    from srpfl.flower.local import LocalFlower
    from srpfl.options.config import Config
    from srpfl.runs.run import Run

deploy = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", cls=Group)


@deploy.callback()
def several_ways() -> None:
    """Play a run on real processes, by Flower (docs/deployment.md: on several machines).

    Example:

      srpfl deploy local --nodes 4 --slow 1
    """


add_to(deploy)


@deploy.command("local")
@with_config
def local(
    nodes: Annotated[int, typer.Option(help="SuperNodes to start, one client each")] = 4,
    slow: Annotated[int, typer.Option(help="how many of them are slow")] = 1,
    factor: Annotated[int, typer.Option(help="how many times the work a slow one does")] = 20,
    budget: Annotated[
        float | None, typer.Option(help="seconds after which a client gives up a round")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="folder to keep the run in, or the folder of one to continue"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
    quiet: Annotated[bool, typer.Option(help="no progress line")] = False,
    *,
    given: dict[str, Any],
) -> None:
    """Start a SuperLink and SuperNodes on this machine, play a run on them, and stop them.

    Slow nodes do their computation several times over. Nothing is reachable from outside, and
    everything that was started ends with the command, however it ends.

    Examples:

      srpfl deploy local --nodes 4 --slow 1

      srpfl deploy local --nodes 6 --slow 2 --method fedrep --rounds 10 --out runs/fedrep
    """
    from srpfl.cli.run import summary
    from srpfl.errors import ConfigError
    from srpfl.options.config import Config
    from srpfl.runs.run import Run

    if nodes < 1 or not 0 <= slow <= nodes or factor < 1:
        raise ConfigError(
            "there must be a node, at most all of them slow, by a factor of 1 or more"
        )
    if given.get("clients", nodes) != nodes:
        raise ConfigError("every node is one client: leave --clients out, or make it --nodes")
    rounds = given.setdefault("rounds", 6)
    given.setdefault("evaluate_every", max(1, rounds // 3))
    config = Config.of({**given, "clients": nodes})
    works = [1] * (nodes - slow) + [factor] * slow
    folder = out or _new_folder(config)
    play_locally(config, works, folder, budget=budget, quiet=quiet)
    run = Run.load(folder)
    if as_json:
        print(json.dumps(summary(run, folder)))
    else:
        _show(run, folder, works)


def play_locally(
    config: Config, works: list[int], out: Path, *, budget: float | None = None, quiet: bool = False
) -> None:
    """Play a run on as many local nodes as there are amounts of work."""
    from srpfl.errors import ConfigError
    from srpfl.loop.progress import ProgressLine
    from srpfl.loop.rounds import hidden
    from srpfl.runs.folder import CONFIG

    try:
        from srpfl.flower.configured import deployed, write_app
        from srpfl.flower.local import LocalFlower
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != "flwr":
            raise
        raise ConfigError("deployment needs Flower: pip install 'srpfl[flower]'") from None
    personal = (out.absolute().parent / f"{out.name}-personal").resolve()
    if personal.exists() and not (out / CONFIG).exists():
        raise ConfigError(
            f"{personal} has the personal parts of an earlier run: remove it, or choose another "
            "--out"
        )
    options, patience = dataclasses.asdict(config), {"budget": budget}
    # Mistakes are found here, before anything is started.
    experiment = deployed(config, patience=patience, out=out)
    policy, clients = experiment.participation, experiment.clients
    hidden(experiment.algorithm, policy, policy.call(policy.begin(clients), 0, clients))
    with ended_in_order(), tempfile.TemporaryDirectory(prefix="srpfl-") as scratch:
        app = write_app(Path(scratch) / "app", options=options, patience=patience, out=out)
        place = LocalFlower(Path(scratch), temporary=True)
        with ProgressLine(hidden=quiet) as line, place as flower:
            headline = experiment.algorithm.headline
            line.setting({"communication": 0.0, "seed": config.seed, "headline": headline})
            line.begin(experiment.name, experiment.rounds, 0)
            for number, work in enumerate(works):
                own = {"partition-id": number, "work": work, "personal-dir": str(personal)}
                flower.start_node(f"node-{number}", own)
            follow(flower, flower.submit(app), out, line)


@contextmanager
def ended_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP end the command as Ctrl-C does: what was started is stopped first. What is
    ignored, as under nohup, stays so."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    heard = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow(flower: LocalFlower, run: str, out: Path, line: Any, *, start: float = 180.0) -> None:
    """Show a run's records as they come, until its server app has ended."""
    from srpfl.errors import SrpflError
    from srpfl.flower.local import until
    from srpfl.runs.folder import RunFolder

    folder = RunFolder(out, say=lambda text: None)
    shown = 0
    until(lambda: bool(flower.pids("flwr-serverapp")), start, "Flower to start the server app")
    running = True
    while running:
        running = bool(flower.pids("flwr-serverapp"))
        time.sleep(0.5)
        records = folder.rounds()
        for record in records[shown:]:
            line.round(record)
        shown = len(records)
        for evaluation in folder.evaluations()[-2:]:
            line.evaluation(evaluation)
    log = flower.log(run)
    if "srpfl: the run is over" not in log or "Traceback" in log:
        raise SrpflError(f"the run failed: {_reason(log)}")


def _reason(log: str) -> str:
    """What a log says last of an error, ours without its class.

    >>> _reason("srpfl: round 1\\nsrpfl.errors.ConfigError: a run needs a round\\n")
    'a run needs a round'
    """
    lines = [text.strip() for text in log.splitlines() if text.strip()]
    errors = [text for text in lines if "Error" in text]
    return re.sub(r"^srpfl\.[\w.]+: ", "", (errors or lines or ["Flower says nothing of it"])[-1])


def _new_folder(config: Config) -> Path:
    """A folder in runs/ that does not exist yet: an existing one would be continued."""
    stem = f"deployed-{config.method}-{config.data.replace(':', '-').replace('/', '-')}"
    folder, number = Path("runs") / stem, 2
    while folder.exists():
        folder, number = Path("runs") / f"{stem}-{number}", number + 1
    return folder


def _show(run: Run, folder: Path, works: list[int]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{run.name} on {len(works)} nodes")
    for name in ("round", "n", "participants", "seconds"):
        table.add_column(name, justify="right")
    for record in run.rounds:
        who = ", ".join(f"{c}*" if works[c] > 1 else str(c) for c in record.participants)
        table.add_row(str(record.round), str(record.wait), who, f"{record.duration:.1f}")
    console = Console()
    console.print(table)
    metric = run.judged_by
    final = metric.shown(run.scores[-1].value) if run.scores else "not evaluated"
    console.print(
        f"{run.headline} {metric.title} {final} after {run.time():.1f} s (* = slow node)\n"
        f"kept in {folder}\nnext: srpfl report {shlex.quote(str(folder))}",
        highlight=False,
        soft_wrap=True,
    )

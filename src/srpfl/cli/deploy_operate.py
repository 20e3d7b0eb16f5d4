"""srpfl deploy status, health, stop, resume, metrics, gateway, sign: for those who operate one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srpfl.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from srpfl.flower.status import Status

Folder = Annotated[Path, typer.Argument(help="the run folder on the server", metavar="RUN")]
Connection = Annotated[
    str, typer.Option(help="Flower's connection to the SuperLink ('' for the default one)")
]


def add_to(deploy: typer.Typer) -> None:
    """Add these commands to the group."""
    for command in (status, health, stop, resume, metrics, gateway, sign):
        deploy.command(command.__name__)(command)


def status(
    run: Folder,
    follow: Annotated[bool, typer.Option(help="show it until the run is over")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print it as JSON")] = False,
) -> None:
    """Show how a deployment is doing: rounds, clients, what happened.

    Example:

      srpfl deploy status runs/flower --follow
    """
    from rich.console import Console
    from rich.live import Live

    from srpfl.flower.status import read_status

    found = read_status(run)
    if as_json:
        print(json.dumps({**asdict(found), "alive": found.alive}))
        return
    if not follow:
        Console().print(_table(found))
        return
    with Live(_table(found), refresh_per_second=2) as live:
        while found.alive:
            time.sleep(1.0)
            found = read_status(run)
            live.update(_table(found))


def health(run: Folder) -> None:
    """Say whether a deployment is well; the exit code is 0 if it is and 1 if not.

    Example:

      srpfl deploy health runs/flower
    """
    from srpfl.flower.status import read_status, trouble

    found = read_status(run)
    if wrong := trouble(found):
        print(wrong)
        raise typer.Exit(1)
    print(f"well: {found.done} of {found.rounds} rounds, {found.present} clients, {found.state}")


def stop(run: Folder, superlink: Connection = "") -> None:
    """Stop a deployment's run by Flower; `resume` continues it.

    Example:

      srpfl deploy stop runs/flower --superlink ours
    """
    from srpfl.flower.status import read_status, stopped

    found = read_status(run)
    if not found.flower_run:
        raise ConfigError(f"{run} does not say which run of Flower's it is: flwr list shows them")
    _flwr("stop", found.flower_run, *_named(superlink))
    stopped(run)
    done = read_status(run).done  # its last word
    print(f"stopped after {done} of {found.rounds} rounds; srpfl deploy resume goes on")


def resume(
    run: Folder,
    app: Annotated[Path, typer.Option(help="the folder of the Flower app")] = Path("."),
    superlink: Connection = "",
) -> None:
    """Go on with a deployment that was stopped or has failed, with the same settings.

    Example:

      srpfl deploy resume runs/flower --app examples/flower --superlink ours
    """
    from srpfl.flower.status import begun_again, read_status

    found = read_status(run)
    if found.alive:
        raise ConfigError(f"{run} is at work ({found.done} of {found.rounds} rounds)")
    with tempfile.TemporaryDirectory(prefix="srpfl-") as scratch:
        # On the command line Flower takes no texts with quotes in them.
        settings = Path(scratch) / "settings.toml"
        settings.write_text(as_toml(found.run_config), encoding="utf-8")
        _flwr("run", str(app), *_named(superlink), "--run-config", str(settings))
    begun_again(run, found)
    print(f"going on after {found.done} of {found.rounds} rounds")


def metrics(
    run: Folder,
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port (0: any free one)")] = 9464,
) -> None:
    """Serve a deployment's numbers to Prometheus (/metrics) and probes (/health).

    Example:

      srpfl deploy metrics runs/flower --port 9464
    """
    from srpfl.flower.metrics import Exporter

    with Exporter(run, host, port) as server:
        bound = server.server_address[1]
        print(f"metrics of {run} at http://{host}:{bound}/metrics (Ctrl-C stops)", flush=True)
        server.serve_forever()


def gateway(
    certificate: Annotated[Path, typer.Option(help="the certificate that nodes see")],
    key: Annotated[Path, typer.Option(help="its private key")],
    ca: Annotated[Path, typer.Option(help="the CA certificate of the SuperLink")],
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port to listen on")] = 8443,
    superlink: Annotated[str, typer.Option(help="where the SuperLink is")] = "127.0.0.1:8000",
    signatures: Annotated[
        Path | None, typer.Option(help="folder with the signatures of apps")
    ] = None,
    largest: Annotated[int, typer.Option(help="bytes that one call may have")] = 64 << 20,
    lines: Annotated[int, typer.Option(help="lines that one address may hold open")] = 1500,
) -> None:
    """Let nodes, and nobody else, reach a SuperLink that listens on loopback.

    Example:

      srpfl deploy gateway --host 0.0.0.0 --certificate keys/server.crt --key keys/server.key
      --ca keys/ca.crt --signatures signatures
    """
    from srpfl.flower.gateway import Door, Gateway, serve_gateway

    for path in (certificate, key, ca):
        if not path.is_file():
            raise ConfigError(f"there is no file {path}")
    door = Door(largest=largest, lines=lines, signatures=signatures)
    serve_gateway(
        Gateway(f"https://{superlink}", door, ca=ca), host, port, certificate=certificate, key=key
    )


def sign(
    app: Annotated[Path, typer.Argument(help="the folder of the Flower app")],
    key: Annotated[Path, typer.Option(help="an Ed25519 key (ssh-keygen -t ed25519)")],
    signatures: Annotated[Path, typer.Option(help="folder to put the signature in")] = Path(
        "signatures"
    ),
    trusted: Annotated[
        Path | None, typer.Option(help="also write the file for nodes' --trusted-entities")
    ] = None,
) -> None:
    """Sign an app, so that nodes that trust the key run it, and no other.

    Example:

      srpfl deploy sign examples/flower --key keys/app --signatures signatures
      --trusted keys/trusted.yaml
    """
    from srpfl.flower import signing

    print(f"signed: {signing.sign(app, key, signatures)}")
    if trusted is not None:
        trusted.write_text(signing.trusted(key.with_name(f"{key.name}.pub")))
        print(f"nodes trust it by --trusted-entities {trusted}")


def as_toml(settings: Mapping[str, Any]) -> str:
    """Settings as Flower reads them from a file: their JSON, but for numbers that JSON lacks.

    >>> as_toml({"rounds": 4, "name": "a\\"b"})
    'rounds = 4\\nname = "a\\\\"b"\\n'
    """
    odd = {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}
    values = {key: json.dumps(value, ensure_ascii=False) for key, value in settings.items()}
    return "".join(f"{key} = {odd.get(text, text)}\n" for key, text in values.items())


def _table(found: Status) -> Table:
    from rich.table import Table

    table = Table(title=f"{found.name}: {_state(found)}", show_header=False)
    rows: list[tuple[str, Any]] = [
        ("rounds", f"{found.done} of {found.rounds}"),
        ("clients", f"{found.present} of {found.population} there, {found.idle} idle"),
        ("received", f"{found.bytes_received / 1e6:.1f} MB"),
        ("personal parts kept", found.parts_kept),
        *sorted(found.events.items()),
    ]
    for name, value in rows:
        table.add_row(name, str(value))
    return table


def _state(found: Status) -> str:
    from srpfl.flower.status import trouble

    return trouble(found) or found.state


def _named(superlink: str) -> list[str]:
    return [superlink] if superlink else []


def _flwr(*arguments: str) -> None:
    """A call of Flower's own command."""
    beside = Path(sys.executable).with_name("flwr")
    program = str(beside) if beside.exists() else "flwr"
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    done = subprocess.run(
        [program, *arguments], env={**quiet, **os.environ}, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise ConfigError(f"flwr {arguments[0]} failed: {reason(done.stdout + done.stderr)}")


def reason(said: str) -> str:
    """What Flower said last, without the box that it draws around it.

    >>> reason("╭─ Error ────────╮\\n│ Run ID         │\\n│ not found.     │\\n╰────────────────╯")
    'Run ID not found.'
    """
    lines = said.strip().splitlines()
    boxed = [line.strip("│ ") for line in lines if line.startswith("│")]
    return " ".join(boxed or lines[-1:]) or "it says nothing"

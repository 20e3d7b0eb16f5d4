"""The command. Each subcommand parses, calls the library, and prints."""

from __future__ import annotations

import importlib
import sys

import typer

from srpfl.errors import SrpflError

app = typer.Typer(
    name="srpfl",
    help="Personalised federated learning that does not wait for stragglers.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

INTERRUPTED = 130  # the code that a command ends with after Ctrl-C

# Each is a module of that name here, with a function of that name in it, or a group of commands.
COMMANDS = [
    "demo",
    "run",
    "compare",
    "reproduce",
    "linear",
    "theory",
    "report",
    "watch",
    "export",
    "bench",
    "deploy",
]

for name in COMMANDS:
    module = importlib.import_module(f"srpfl.cli.{name}")
    command = getattr(module, name)
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name)(command)


def main() -> None:
    """Run the command; a user's mistake ends with one sentence and a non-zero exit."""
    try:
        app()
    except SrpflError as error:
        print(f"srpfl: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except SystemExit as end:
        if end.code == INTERRUPTED:  # without a word so far
            print("srpfl: stopped", file=sys.stderr)
        raise
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        sys.stderr.close()
        raise SystemExit(1) from None

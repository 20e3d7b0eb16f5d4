"""The command. Each subcommand parses, calls the library, and prints."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

import srpfl
from srpfl.cli.group import Group
from srpfl.errors import SrpflError, SrpflWarning
from srpfl.options.own import place, told

app = typer.Typer(
    name="srpfl",
    no_args_is_help=True,
    cls=Group,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

INTERRUPTED = 130  # the code that a command ends with after Ctrl-C
AGAIN = 20  # seconds after which a Ctrl-C that had no effect is sent again
TRACEBACK = "SRPFL_TRACEBACK"  # in the environment: show where an error comes from

# Each is a module of that name here, with a function of that name in it, or a group of commands.
COMMANDS = {
    "Begin": ["demo", "run", "compare", "sweep"],
    "Look": ["report", "watch", "export", "doctor"],
    "Deploy": ["deploy"],
    "Study": ["reproduce", "shootout", "linear", "theory", "privacy", "bench"],
}

for panel, names in COMMANDS.items():
    for name in names:
        module = importlib.import_module(f"srpfl.cli.{name}")
        command = getattr(module, name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(command)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"srpfl {srpfl.__version__}")
        raise typer.Exit


@app.callback(epilog="Try `srpfl demo` first: it takes a minute and needs nothing.")
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Personalised federated learning that does not wait for stragglers."""


def _warned(usual: Callable[..., None]) -> Callable[..., None]:
    """Our own warnings in one line, without the place in our code."""

    def shown(message: Warning | str, category: type[Warning], *place: Any) -> None:
        if issubclass(category, SrpflWarning):
            print(f"srpfl: note: {message}", file=sys.stderr)
        else:
            usual(message, category, *place)

    return shown


def main() -> None:
    """Run the command; a user's mistake ends with one sentence and a non-zero exit, also one in
    code of the user's own."""
    warnings.showwarning = _warned(warnings.showwarning)
    try:
        with _insistent():
            app()
    except SrpflError as error:
        if os.environ.get(TRACEBACK):
            raise
        print(f"srpfl: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != INTERRUPTED:
            raise
        # Python takes a moment to end, and would answer another Ctrl-C with a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("srpfl: stopped", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        sys.stderr.close()
        raise SystemExit(1) from None
    except Exception as error:
        if os.environ.get(TRACEBACK) or place(error) is None:
            raise
        print(f"srpfl: {told(error)}; {TRACEBACK}=1 shows the traceback", file=sys.stderr)
        raise SystemExit(2) from None


@contextlib.contextmanager
def _insistent() -> Iterator[None]:
    """A Ctrl-C is sent again while the command still runs: Python drops what is raised where
    nothing may be, as in a destructor."""

    def interrupt(*_: object) -> None:
        signal.alarm(AGAIN)
        raise KeyboardInterrupt

    ours = threading.current_thread() is threading.main_thread()
    usual = ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or sys.platform == "win32":  # which has no alarms
        yield
        return
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGALRM, before)

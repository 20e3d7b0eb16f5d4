"""What the commands that train have in common."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from srpfl.loop.progress import ProgressLine
from srpfl.loop.watchers import Watcher
from srpfl.options import play as options
from srpfl.options.config import Config
from srpfl.runs.folder import CONFIG
from srpfl.runs.names import file_name
from srpfl.runs.run import Run


def play(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    sync: bool = True,
    quiet: bool = False,
    watchers: Sequence[Watcher] = (),
) -> Run:
    """One run with a progress line."""
    # Standard output belongs to the result, and Ray would say there that a worker has died.
    with contextlib.redirect_stdout(sys.stderr), ProgressLine(hidden=quiet) as line:
        return options.play(config, out, resume=resume, sync=sync, watchers=[line, *watchers])


def play_or_resume(config: Config, out: Path, *, quiet: bool = False) -> Run:
    """A run that may be there already, in part or whole: nothing is trained twice."""
    return play(config, out, resume=(out / CONFIG).exists(), quiet=quiet)


def new_folder(config: Config) -> Path:
    """A folder in runs/ that does not exist yet, with a name that says what is in it."""
    stem = file_name(f"{config.title}-{config.data}-seed{config.seed}")
    folder, number = Path("runs") / stem, 2
    while folder.exists():
        folder, number = Path("runs") / f"{stem}-{number}", number + 1
    return folder

"""What the commands that train have in common."""

from __future__ import annotations

from pathlib import Path

from srpfl.cli.progress import ProgressLine
from srpfl.config import Config, experiment
from srpfl.folder import CONFIG
from srpfl.run import Run
from srpfl.simulation import simulate


def play(config: Config, out: Path, *, resume: bool = False, quiet: bool = False) -> Run:
    """One run with a progress line."""
    choices = experiment(config)
    with ProgressLine(hidden=quiet) as line:
        return simulate(**choices, out=out, resume=resume, watchers=[line])


def play_or_resume(config: Config, out: Path, *, quiet: bool = False) -> Run:
    """A run that may be there already, in part or whole: nothing is trained twice."""
    return play(config, out, resume=(out / CONFIG).exists(), quiet=quiet)


def new_folder(config: Config) -> Path:
    """A folder in runs/ that does not exist yet, with a name that says what is in it."""
    stem = f"{config.method}-{config.data.replace(':', '-').replace('/', '-')}-seed{config.seed}"
    folder, number = Path("runs") / stem, 2
    while folder.exists():
        folder, number = Path("runs") / f"{stem}-{number}", number + 1
    return folder

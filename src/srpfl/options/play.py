"""From options to a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from srpfl.loop.simulation import simulate
from srpfl.loop.watchers import Watcher
from srpfl.options.config import Config
from srpfl.options.experiment import experiment
from srpfl.runs.folder import CONFIG
from srpfl.runs.run import Run


def play(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    sync: bool = True,
    watchers: Sequence[Watcher] = (),
) -> Run:
    """Play the run that the options describe, and keep it in a folder."""
    return simulate(
        **experiment(config), out=out, resume=resume, sync=sync, watchers=watchers, progress=False
    )


def play_or_resume(config: Config, out: Path, *, watchers: Sequence[Watcher] = ()) -> Run:
    """A run that may be there already, in part or whole: nothing is trained twice."""
    return play(config, out, resume=(out / CONFIG).exists(), watchers=watchers)

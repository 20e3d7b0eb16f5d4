"""Runs in folders: a run's own folder, or one that holds several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from srpfl.errors import RunFolderError
from srpfl.runs.folder import CONFIG


def find_runs(paths: Sequence[str | Path]) -> list[Path]:
    """The run folders at or below the given ones. Folders without a run are left out, since
    ``runs/*`` also names those of pictures; a path that is not there is a mistake."""
    inside = {path: runs_in(path) for path in map(Path, paths)}
    for path, runs in inside.items():
        if not runs and not (path.is_dir() and any(inside.values())):
            raise RunFolderError(f"{path} holds no run (there is no {CONFIG} in it or below it)")
    return list(dict.fromkeys(run for runs in inside.values() for run in runs))


def runs_in(path: Path) -> list[Path]:
    """The folder itself if it holds a run, or else all below it that do."""
    if (path / CONFIG).exists():
        return [path]
    return sorted(config.parent for config in path.rglob(CONFIG))

"""Runs in folders: a run's own folder, or one that holds several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from srpfl.errors import RunFolderError
from srpfl.runs.folder import CONFIG


def find_runs(paths: Sequence[str | Path]) -> list[Path]:
    """The run folders at or below the given ones; each of these must hold at least one."""
    found: list[Path] = []
    for path in map(Path, paths):
        inside = runs_in(path)
        if not inside:
            raise RunFolderError(f"{path} holds no run (there is no {CONFIG} in it or below it)")
        found += inside
    return list(dict.fromkeys(found))


def runs_in(path: Path) -> list[Path]:
    """The folder itself if it holds a run, or else all below it that do."""
    if (path / CONFIG).exists():
        return [path]
    return sorted(config.parent for config in path.rglob(CONFIG))

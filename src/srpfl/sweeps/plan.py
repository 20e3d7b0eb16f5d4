"""Which runs make up a sweep, and where each of them lives."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srpfl.errors import ConfigError, RunFolderError, shown, unknown
from srpfl.options.config import Config
from srpfl.runs.checkpoint import newest
from srpfl.runs.files import TIMING, drafts, read_end
from srpfl.runs.folder import CONFIG, DIVERGED, RunFolder
from srpfl.runs.names import file_name
from srpfl.runs.results import Results

PARTS: dict[str, tuple[type, str]] = {
    "common": (dict, "a table of options"),
    "grid": (dict, "a table of lists"),
    "runs": (list, "a list of tables"),
    "out": (str, "a folder's name"),
}
MOST = 100_000  # runs of one sweep

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Planned:
    """One run of a sweep."""

    folder: Path
    config: Config
    varied: Options  # what sets it apart from the others

    @property
    def rounds(self) -> int:
        return self.config.number("rounds", 60)

    def state(self) -> str:
        """What its folder says: "done", "diverged", "begun" or "waiting"."""
        if (self.folder / DIVERGED).exists():
            return "diverged"
        if not (self.folder / CONFIG).exists():
            return "waiting"
        folder = RunFolder(self.folder, say=lambda text: None)
        self._check(folder)
        held, config = folder.held(), folder.config()
        run = Results(config, *held.upto(held.whole))
        stop = self.config.stop_at
        reached = stop is not None and any(run.reaches(p.value, stop) for p in run.scores)
        # It may have been killed after its last round: before that was saved or evaluated, or while
        # what is not needed any more was removed.
        saved, tidy = self._saved(held.whole), not drafts(self.folder)
        over = (held.whole >= self.rounds or reached) and held.evaluated(config) and saved and tidy
        return "done" if over else "begun"

    def _saved(self, round: int) -> bool:
        """Whether the state after a round is there, or was: studies keep no weights, and a round is
        timed once it is saved."""
        if there := newest(self.folder):
            return there == round
        try:
            return f'{{"round": {round}, '.encode() in read_end(self.folder / TIMING, 60)
        except FileNotFoundError:
            return False

    def _check(self, folder: RunFolder) -> None:
        """Refuse a folder with another run than this one."""
        held, mine = folder.config().get("options"), self.config.for_folder()
        if not isinstance(held, dict) or any(mine.get(name) != v for name, v in held.items()):
            raise RunFolderError(
                f"{self.folder} holds another run than this sweep's: choose another folder"
            )


def planned(
    out: Path,
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    runs: Sequence[Options] = (),
    common: Options | None = None,
) -> list[Planned]:
    """The runs of a sweep: each of the list with each combination of the grid.

    >>> some = planned(Path("out"), grid={"method": ["fedrep", "srpfl"], "seed": [0, 1]})
    >>> [str(run.folder) for run in some]
    ['out/fedrep-seed0', 'out/fedrep-seed1', 'out/srpfl-seed0', 'out/srpfl-seed1']
    """
    found: dict[Path, Planned] = {}
    for varied in _combinations(grid or {}, runs):
        config = Config.of({**(common or {}), **varied}, "the sweep")
        folder = out / _name(varied)
        if folder in found:
            raise ConfigError(f"two runs of the sweep are both called {folder.name}: drop one")
        found[folder] = Planned(folder, config, varied)
    if not found:
        raise ConfigError("a sweep has at least one run: give a grid or a list of runs")
    return list(found.values())


def read_study(path: Path) -> dict[str, Any]:
    """The parts of a TOML file: ``common`` options, a ``grid`` and a list of ``runs``."""
    try:
        told = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    for name in told:
        if name not in PARTS:
            raise unknown(f"part of {path}", name, PARTS)
    for name, (kind, what) in PARTS.items():
        if name in told and not isinstance(told[name], kind):
            raise ConfigError(f"'{name}' in {path} must be {what}, not {shown(told[name])}")
    return told


def _combinations(grid: Any, runs: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(grid, Mapping) or not all(_is_list(values) for values in grid.values()):
        raise ConfigError(f"a grid has a list of values for each option, not {shown(grid)}")
    if not _is_list(runs) or not all(isinstance(run, Mapping) for run in runs):
        raise ConfigError(f"the runs of a sweep are a list of options, not {shown(runs)}")
    count = max(1, len(runs))
    for values in grid.values():
        count *= len(values)
    if count > MOST:
        raise ConfigError(f"{count:,} runs are more than a sweep can have, {MOST:,}")
    if not grid and not runs:
        return
    for run in runs or [{}]:
        if twice := sorted(run.keys() & grid.keys()):
            raise ConfigError(f"both the grid and a run of the sweep say '{twice[0]}': drop one")
        for values in itertools.product(*grid.values()):
            yield {**run, **dict(zip(grid, values, strict=True))}


def _is_list(values: Any) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, str)


def _name(varied: Options) -> str:
    """A folder's name, such as srpfl-lr0.01-seed0."""
    words = [str(varied["method"])] if "method" in varied else []
    words += [f"{name}{value}" for name, value in varied.items() if name != "method"]
    return file_name("-".join(words).replace("/", "_"))

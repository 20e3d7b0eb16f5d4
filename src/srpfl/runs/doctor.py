"""Whether a run folder is whole, what is damaged in it, and mending what can be mended.

Nothing is thrown away: what is damaged goes into a folder ``damaged`` beside the rest.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from srpfl.errors import RunFolderError
from srpfl.runs.checkpoint import DAMAGE, check_same_run, listed, verified
from srpfl.runs.files import (
    CHECKPOINTS,
    EVALUATIONS,
    PARTITION,
    ROUNDS,
    TIMING,
    drafts,
    folder_at,
    read_bytes,
    read_lines,
    refuse_links,
    remove_drafts,
    write_text,
)
from srpfl.runs.folder import RunFolder
from srpfl.runs.reading import Held, lines_of
from srpfl.runs.records import EvaluationRecord, RoundRecord
from srpfl.runs.room import Room, largest

DAMAGED = "damaged"  # where damaged files are put
LOOKS = 3  # at a run in progress that seems damaged


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, and what mending does about it; None: nothing can be done."""

    wrong: str
    remedy: str | None


@dataclass(frozen=True)
class Health:
    """What there is to say about a run folder."""

    path: Path
    findings: list[Finding]
    rounds: int = 0  # that can be read
    planned: int = 0
    state: int = 0  # the round after which the run can continue
    playing: bool = False  # by another process, just now

    @property
    def whole(self) -> bool:
        return not self.findings


def examine(path: Path) -> Health:
    """Look at every file of a run, and change nothing."""
    health = _look(path)
    for _ in range(LOOKS):
        if health.whole or not health.playing:
            break
        time.sleep(0.1)  # half a line may just be on its way
        health = _look(path)
    return health


def _look(path: Path) -> Health:
    said: list[str] = []
    folder = RunFolder(path, say=said.append)
    try:
        refuse_links(path)
        config, held = folder.config(), folder.held()
        folder.counts()
        with contextlib.suppress(FileNotFoundError):
            read_bytes(path / TIMING)  # as going on with the run does
    except RunFolderError as error:
        return Health(path, [Finding(str(error), None)])
    except OSError as error:
        return Health(path, [Finding(f"cannot read {path}: {error.strerror}", None)])
    findings = [Finding(text, f"it is put into {DAMAGED}/") for text in said]
    cut = f"the records are cut back to round {held.whole}, and the originals put into {DAMAGED}/"
    findings += [Finding(text, cut) for text in (*held.damage, *held.lost)]
    good, bad = _checkpoints(folder, held)
    findings += [Finding(text, f"it is put into {DAMAGED}/") for text in bad.values()]
    playing = folder.in_use()
    if not playing and (left := drafts(path)):
        count = "1 file" if len(left) == 1 else f"{len(left)} files"
        findings.append(Finding(f"a crash left {count} half written", "they are removed"))
    if not good and bad:
        findings.append(
            Finding("no good state is left: resuming plays the run from its beginning", None)
        )
    planned = config.get("rounds")
    return Health(
        path,
        findings,
        held.whole,
        planned if type(planned) is int else 0,
        max(good, default=0),
        playing,
    )


def mend(path: Path) -> list[str]:
    """Mend what can be mended; say what was done."""
    folder, done = RunFolder(path, say=lambda text: None), []
    folder.claim()
    try:
        held = folder.held()
        wrong: list[str] = []
        RunFolder(path, say=wrong.append).counts()
        if wrong:
            done.append(_put_away(path, PARTITION))
        _, bad = _checkpoints(folder, held)
        done += [_put_away(path, f"{CHECKPOINTS}/{place.name}") for place in bad]
        if held.damage or held.lost:
            done += _cut(folder, held)
        done += [f"removed {draft}" for draft in remove_drafts(path)]
    except OSError as error:
        raise RunFolderError(f"cannot mend {path}: {error.strerror or error}") from error
    finally:
        folder.release()
    return done


def _checkpoints(folder: RunFolder, held: Held) -> tuple[list[int], dict[Path, str]]:
    """The rounds of the good checkpoints, and what is wrong with the others."""
    good, bad = [], {}
    known: dict[Path, str] = {}
    for place in listed(folder.path):
        round = int(place.name)
        try:
            check_same_run(verified(place, sealed=folder.sealed, known=known), held.rounds)
        except DAMAGE as error:
            bad[place] = f"the checkpoint after round {round} is damaged ({error})"
            continue
        if round > held.whole:
            bad[place] = f"the records of the checkpoint after round {round} are gone"
        else:
            good.append(round)
    # Also what a loss of power leaves of a checkpoint that was about to go.
    for place in bad:
        if int(place.name) < max(good, default=0):
            bad[place] += ": the run does not need it, a newer one is whole"
    return good, bad


def _cut(folder: RunFolder, held: Held) -> list[str]:
    """Cut the records back to what is whole."""
    done, (rounds, evaluations) = [], held.upto(held.whole)
    kept: dict[str, Sequence[RoundRecord | EvaluationRecord]]
    kept = {ROUNDS: rounds, EVALUATIONS: evaluations}
    for name, records in kept.items():
        path = folder.path / name
        if path.exists():
            if _holds(path, lines_of(records, sealed=folder.sealed)):
                continue
            done.append(_put_away(folder.path, name))
        write_text(path, lines_of(records, sealed=folder.sealed), durable=True)
        done.append(f"wrote {path} again, up to round {held.whole}")
    return done


def _holds(path: Path, lines: Iterator[str]) -> bool:
    """Whether a file has these lines and no others."""
    there = read_lines(path, Room(largest()))
    return all(line == (own or "").encode() for line, own in zip_longest(there, lines))


def _put_away(folder: Path, name: str) -> str:
    """Move something damaged out of the way."""
    folder_at(folder / DAMAGED, make=True)
    stem = name.replace("/", "-")
    target, number = folder / DAMAGED / stem, 2
    while target.exists() or target.is_symlink():
        target, number = folder / DAMAGED / f"{stem}-{number}", number + 1
    (folder / name).rename(target)
    return f"moved {folder / name} to {target}"

"""The records of a run as far as they can be trusted, and what is wrong with the rest."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srpfl.errors import RunFolderError
from srpfl.runs.checkpoint import newest
from srpfl.runs.files import EVALUATIONS, ROUNDS
from srpfl.runs.files import read_lines as lines_in
from srpfl.runs.records import EvaluationRecord, Record, RoundRecord, check_types, read, to_line
from srpfl.runs.room import Room, largest
from srpfl.runs.seal import opened, seal


@dataclass(frozen=True)
class Held:
    """The records that a folder holds."""

    rounds: list[RoundRecord]
    evaluations: list[EvaluationRecord]
    damage: list[str]  # a sentence for each file with a bad line
    lost: list[str]  # what is not there though later things are
    whole: int  # rounds with all their records; what is due after the last can still be evaluated

    def evaluated(self, config: Mapping[str, Any]) -> bool:
        """Whether all evaluations are there that were due by now, also those after the last round:
        a run is saved before it is evaluated, so this one is over or can be gone on with."""
        return all(due > len(self.rounds) for due in _missing(self.evaluations, config))

    def upto(self, round: int) -> tuple[list[RoundRecord], list[EvaluationRecord]]:
        return (
            [record for record in self.rounds if record.round <= round],
            [tested for tested in self.evaluations if tested.round <= round],
        )


def held(folder: Path, config: Mapping[str, Any], *, sealed: bool) -> Held:
    """Read both files. A run may be in progress, so what is written first is read last: a state
    follows its round, and an evaluation too."""
    saved = newest(folder)
    room, path = Room(largest()), folder / ROUNDS
    rounds, bad = read_lines(path, RoundRecord, sealed=sealed, room=room)
    evaluations, worse = read_lines(
        folder / EVALUATIONS, EvaluationRecord, sealed=sealed, room=room
    )
    if evaluations and evaluations[-1].round > len(rounds) and bad is None:
        rounds = []  # so that they are not in memory twice
        rounds, bad = read_lines(path, RoundRecord, sealed=sealed)
    rounds, strange = _of_this_run(folder / ROUNDS, rounds, config)
    evaluations, stranger = _of_this_run(folder / EVALUATIONS, evaluations, config)
    evaluations, mixed = _of_these_rounds(folder / EVALUATIONS, evaluations, rounds)
    whole = _whole(len(rounds), evaluations, config)
    lost = []
    if whole < len(rounds):
        lost.append(f"{folder / EVALUATIONS} has not all evaluations after round {whole}")
    later = max([saved, *(record.round for record in evaluations)])
    if len(rounds) < later:
        lost.append(f"{folder / ROUNDS} ends after round {len(rounds)}, but the run got to {later}")
    damage = [text for text in (strange or bad, mixed or stranger or worse) if text is not None]
    return Held(rounds, evaluations, damage, lost, whole)


def read_lines(
    path: Path, kind: type[Record], *, sealed: bool, room: Room | None = None
) -> tuple[list[Record], str | None]:
    """The records up to the first bad line, for what follows it is not trusted; and what is wrong
    with that line."""
    room = room or Room(largest())
    records: list[Record] = []
    before = ""
    try:
        for number, line in enumerate(lines_in(path, room), start=1):
            try:
                record, before = _record(line, kind, before, sealed=sealed)
                _check_order(record, records)
            except (ValueError, TypeError) as error:
                return records, _bad(path, number, error)
            records.append(record)
    except FileNotFoundError:
        return [], None
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}") from error
    return records, None


def _record(line: bytes, kind: type[Record], before: str, *, sealed: bool) -> tuple[Record, str]:
    """The record of a line, after one with that sum, and its own sum."""
    if not line.endswith(b"\n"):
        raise ValueError("it is cut short")
    values, own = opened(line, needed=sealed, before=before)
    if not isinstance(values, dict):
        raise ValueError("it is not a record")
    record = read(kind, values)
    check_types(record)
    return record, own


def _check_order(record: RoundRecord | EvaluationRecord, before: Sequence[Any]) -> None:
    """Rounds are numbered without a gap; evaluations follow them, one of a kind after each."""
    if isinstance(record, RoundRecord):
        if record.round != len(before) + 1:
            raise ValueError(f"it is round {record.round}")
        return
    there = itertools.takewhile(lambda other: other.round >= record.round, reversed(before))
    if any(other.round > record.round or other.kind == record.kind for other in there):
        raise ValueError(f"it is the {record.kind} evaluation after round {record.round}")


def lines_of(records: Sequence[RoundRecord | EvaluationRecord], *, sealed: bool) -> Iterator[str]:
    """The lines of a file that holds these records, one by one: all would take as much memory as
    the records do."""
    before = ""
    for record in records:
        line, before = sealed_line(record, before) if sealed else (to_line(record), "")
        yield line


def sealed_line(record: RoundRecord | EvaluationRecord, before: str) -> tuple[str, str]:
    """A record's line after the one with that sum, and its own sum."""
    line = seal(to_line(record), before)
    return line, line[-19:-3]


def _of_this_run(
    path: Path, records: list[Record], config: Mapping[str, Any]
) -> tuple[list[Record], str | None]:
    """The records up to the first that names clients whom the run does not have."""
    data = config.get("data")
    clients = data.get("clients") if isinstance(data, Mapping) else None
    if type(clients) is not int:
        return records, None
    for number, record in enumerate(records, start=1):
        if not _fits(record, clients):
            error = ValueError(f"the run has {clients} clients")
            return records[: number - 1], _bad(path, number, error)
    return records, None


def _of_these_rounds(
    path: Path, evaluations: list[EvaluationRecord], rounds: Sequence[RoundRecord]
) -> tuple[list[EvaluationRecord], str | None]:
    """The evaluations up to the first that was not made after these rounds: files of two runs, each
    of them whole, may have been mixed up."""
    for number, record in enumerate(evaluations, start=1):
        for played in rounds[record.round - 1 : record.round] if record.round else ():
            if played.computing != record.computing:
                error = ValueError(f"it is not of the run whose rounds are in {ROUNDS}")
                return evaluations[: number - 1], _bad(path, number, error)
    return evaluations, None


def _fits(record: RoundRecord | EvaluationRecord, clients: int) -> bool:
    if isinstance(record, EvaluationRecord):
        if record.sample:
            return all(a < b for a, b in itertools.pairwise([-1, *record.sample, clients]))
        return len(record.clients) == clients
    return all(0 <= client < clients for client in [*record.participants, *record.late])


def _whole(rounds: int, evaluations: Sequence[EvaluationRecord], config: Mapping[str, Any]) -> int:
    return min([rounds, *_missing(evaluations, config)])


def _missing(evaluations: Sequence[EvaluationRecord], config: Mapping[str, Any]) -> list[int]:
    """The rounds after which some evaluation is due that is not there."""
    done = {(record.round, record.kind) for record in evaluations}
    return [
        due
        for due in config.get("evaluate_at", [])
        for kind in config.get("evaluations", [])
        if (due, kind) not in done
    ]


def _bad(path: Path, number: int, error: Exception) -> str:
    return f"{path}, line {number}, is damaged ({error}): it is left out, and what follows it"

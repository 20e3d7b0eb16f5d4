"""What a run writes down, and what can be read from it: plain values, one JSON line each."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar

Record = TypeVar("Record", "RoundRecord", "EvaluationRecord")


@dataclass(frozen=True)
class RoundRecord:
    """One round. Times are simulated seconds without communication: C is added when read."""

    round: int  # from 1
    stage: int
    wait: int  # n
    asked: int  # N
    participants: list[int]  # in order of arrival
    arrivals: list[float]  # when each of them answered, since it was asked
    late: list[int]  # asked, but not waited for: their answers are dropped (not all, if very many)
    late_arrivals: list[float]  # when they would have answered
    loss: float  # mean over the participants
    duration: float  # until the server continued
    computing: float  # sum of the durations so far
    decision: dict[str, Any] = field(default_factory=dict)  # a policy's account of itself
    ages: list[int] = field(default_factory=list)  # of the answers, where late ones are kept
    lost: list[int] = field(default_factory=list)  # left while at work, and never answered

    def time(self, communication: float) -> float:
        """Simulated time at the end of this round, for any C."""
        return self.computing + communication * self.round


@dataclass(frozen=True)
class EvaluationRecord:
    """One evaluation of one kind, after a round."""

    round: int
    kind: str
    computing: float
    value: float  # of the metric, over all clients' test samples
    clients: list[float]  # per client
    weights: list[float]  # per client: test samples, or what the task weighs by
    metric: str = "accuracy"
    higher_is_better: bool = True
    sample: list[int] = field(default_factory=list)  # the clients, where not all were tested
    error: float = 0.0  # of the value, by chance of the sample: its standard error

    @property
    def tested(self) -> Sequence[int]:
        """The clients that the values are of, in their order."""
        return self.sample or range(len(self.clients))

    def time(self, communication: float) -> float:
        return self.computing + communication * self.round

    def reaches(self, target: float) -> bool:
        """Whether the metric is at the target or better."""
        return self.value >= target if self.higher_is_better else self.value <= target


KINDS = ("personalised", "global", "local")  # of evaluation
FORMER = {"accuracy": "value", "tested": "weights"}  # names in records of the first version


def read(kind: type[Record], values: dict[str, Any]) -> Record:
    """A record from its JSON, of this version or the first."""
    if kind is EvaluationRecord:
        values = {FORMER.get(name, name): value for name, value in values.items()}
    if strange := values.keys() - {field.name for field in fields(kind)}:
        raise ValueError(f"a record has no {min(strange)!a}")
    needed = (field for field in fields(kind) if _is_needed(field))
    if missing := [field.name for field in needed if field.name not in values]:
        raise ValueError(f"its '{missing[0]}' is missing")
    return kind(**values)


def _is_needed(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def check_types(record: RoundRecord | EvaluationRecord) -> None:
    """Refuse values that a record cannot have, as a damaged file may hold them."""
    for field_ in fields(record):
        value, wanted = getattr(record, field_.name), str(field_.type)
        items = value if isinstance(value, list) else [value]
        kinds = next(kinds for name, kinds in TYPES.items() if name in wanted)
        if wanted.startswith("list") != isinstance(value, list) or not kinds.issuperset(
            map(type, items)
        ):
            raise ValueError(f"'{field_.name}' is not a {wanted}")
        if not _finite(items):
            raise ValueError(f"'{field_.name}' has a number that is not finite")
    if isinstance(record, EvaluationRecord) and len(record.tested) != len(record.clients):
        raise ValueError("'sample' and 'clients' are not equally long")
    for one, other in PAIRS[type(record)]:
        if len(getattr(record, one)) != len(getattr(record, other)):
            raise ValueError(f"'{one}' and '{other}' are not equally long")


def are_numbers(values: Sequence[Any]) -> bool:
    """Whether all of them are numbers, and such that one can reckon with them."""
    return all(type(value) in (int, float) and _finite(value) for value in values)


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return abs(value) < 1 << 63  # beyond that there is none in a record
    if isinstance(value, dict):
        return _finite(list(value.values()))
    if not isinstance(value, list):
        return True
    # Lists are long and mostly of one kind: of a million clients there are millions of numbers.
    kinds = set(map(type, value))
    if kinds == {float}:
        return all(map(math.isfinite, value))
    if kinds == {int}:
        return _finite(min(value)) and _finite(max(value))
    return all(map(_finite, value))


# By the names of types, as annotations have them; the first that fits counts.
TYPES: dict[str, set[type]] = {
    "dict": {dict},
    "bool": {bool},
    "float": {int, float},
    "int": {int},
    "str": {str},
}
PAIRS: dict[type, list[tuple[str, str]]] = {
    RoundRecord: [("participants", "arrivals"), ("late", "late_arrivals")],
    EvaluationRecord: [("clients", "weights")],
}

RARE = ("ages", "lost", "sample", "error")


def to_line(record: RoundRecord | EvaluationRecord) -> str:
    """A record as one JSON line; floats keep every digit. What only some have is left out
    of the others."""
    told = {name: value for name, value in vars(record).items() if value or name not in RARE}
    return json.dumps(told, separators=(",", ":"), allow_nan=False) + "\n"


def mean_times(rounds: Sequence[RoundRecord]) -> dict[int, float]:
    """The mean time of each client that was ever seen to answer, in time or late."""
    seen: dict[int, list[float]] = {}
    for record in rounds:
        answers = [*zip(record.participants, record.arrivals, strict=True)]
        answers += zip(record.late, record.late_arrivals, strict=True)
        for client, time in answers:
            seen.setdefault(client, []).append(time)
    return {client: sum(times) / len(times) for client, times in seen.items()}


def half_accuracies(record: EvaluationRecord, slowest_first: Sequence[int]) -> tuple[float, float]:
    """Mean accuracy of the slowest and of the fastest half of the clients."""
    half = len(slowest_first) // 2
    return (
        _weighted(record, slowest_first[:half]),
        _weighted(record, slowest_first[len(slowest_first) - half :]),
    )


def _weighted(record: EvaluationRecord, clients: Sequence[int]) -> float:
    place = {client: place for place, client in enumerate(record.tested)}
    places = [place[client] for client in clients if client in place]
    total = sum(record.weights[i] for i in places)
    return sum(record.clients[i] * record.weights[i] for i in places) / total if total else 0.0

"""What a run writes down, and what can be read from it: plain values, one JSON line each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class RoundRecord:
    """One round. Times are simulated seconds without communication: C is added when read."""

    round: int  # from 1
    stage: int
    wait: int  # n
    asked: int  # N
    participants: list[int]  # in order of arrival
    arrivals: list[float]  # when each of them answered, since the round began
    late: list[int]  # asked, but not waited for
    late_arrivals: list[float]  # when they would have answered
    loss: float  # mean over the participants
    duration: float  # when the round went on
    computing: float  # sum of the durations so far
    decision: dict[str, Any] = field(default_factory=dict)  # a policy's account of itself

    def time(self, communication: float) -> float:
        """Simulated time at the end of this round, for any C."""
        return self.computing + communication * self.round


@dataclass(frozen=True)
class EvaluationRecord:
    """One evaluation of one kind, after a round."""

    round: int
    kind: str
    computing: float
    accuracy: float  # mean over clients, weighted by test points
    clients: list[float]  # per client
    tested: list[int]  # test points per client

    def time(self, communication: float) -> float:
        return self.computing + communication * self.round


def check_types(record: RoundRecord | EvaluationRecord) -> None:
    """Refuse values that a record cannot have, as a damaged file may hold them."""
    for field_ in fields(record):
        value, wanted = getattr(record, field_.name), str(field_.type)
        items = value if isinstance(value, list) else [value]
        kinds = next(kinds for name, kinds in KINDS.items() if name in wanted)
        if wanted.startswith("list") != isinstance(value, list) or any(
            type(item) not in kinds for item in items
        ):
            raise ValueError(f"'{field_.name}' is not a {wanted}")


# By the names of types, as annotations have them; the first that fits counts.
KINDS: dict[str, tuple[type, ...]] = {
    "dict": (dict,),
    "float": (int, float),
    "int": (int,),
    "str": (str,),
}


def to_line(record: RoundRecord | EvaluationRecord) -> str:
    """A record as one JSON line; floats keep every digit."""
    return json.dumps(asdict(record), separators=(",", ":"), allow_nan=False) + "\n"


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
    total = sum(record.tested[client] for client in clients)
    return sum(record.clients[i] * record.tested[i] for i in clients) / total if total else 0.0

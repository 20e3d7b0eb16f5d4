"""What became of each client: speed, value, rounds that counted; and whether some fell behind."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from srpfl.runs.records import mean_times
from srpfl.runs.results import Results

POPULATION = 10_000_000  # no config that says more is believed
ROWS = 100_000  # beyond this, clients that were tested stand for all of them, and not all of those


@dataclass(frozen=True)
class ClientRow:
    """What became of one client in a run."""

    client: int
    time: float | None  # mean of its answers; None: it was never seen to answer
    value: float | None  # of the metric at the last evaluation; None: it was not tested
    weight: float  # of that: test samples, or what the task weighs by
    counted: int  # rounds
    late: int


def client_rows(run: Results) -> list[ClientRow]:
    """A row for each client, from the fastest to the slowest; those never seen come last. Of very
    many clients, those that were tested at the end stand for all."""
    headline = [record for record in run.evaluations if record.kind == run.headline]
    last = headline[-1] if headline else None
    counted = Counter(client for record in run.rounds for client in record.participants)
    late = Counter(client for record in run.rounds for client in record.late)
    times = mean_times(run.rounds)
    told = zip(last.tested, last.clients, last.weights, strict=False) if last else ()
    values = {client: (value, weight) for client, value, weight in told}
    shown: Sequence[int] = range(population(run))
    if len(shown) > ROWS:
        shown = sorted(values or times)
        shown = shown[:: math.ceil(len(shown) / ROWS) or 1]
    rows = [
        ClientRow(
            client,
            times.get(client),
            values[client][0] if client in values and values[client][1] else None,
            values[client][1] if client in values else 0,
            counted[client],
            late[client],
        )
        for client in shown
    ]
    return sorted(rows, key=lambda row: math.inf if row.time is None else row.time)


def halves(run: Results) -> tuple[float | None, float | None]:
    """The metric of the faster and of the slower half, each taken together."""
    rows = client_rows(run)
    half = len(rows) // 2
    return _together(run, rows[:half]), _together(run, rows[len(rows) - half :])


@dataclass(frozen=True)
class Fairness:
    """Values of the metric at the last evaluation; None where nobody was tested."""

    slower: float | None  # half of the clients, by mean time
    slowest: float | None  # tenth of them
    worst: float | None  # tenth of the clients, by value
    heard: float | None  # of those whose answers counted at least once
    unheard: float | None  # of those who were never waited for


def fairness(run: Results) -> Fairness:
    """Whether anyone is left behind."""
    rows = client_rows(run)
    tenth = max(1, round(len(rows) / 10))
    tested = [row for row in rows if row.value is not None]
    by_value = sorted(
        tested, key=lambda row: row.value or 0.0, reverse=not run.higher_is_better
    )  # fmt: skip
    return Fairness(
        slower=_together(run, rows[len(rows) - len(rows) // 2 :]),
        slowest=_together(run, [row for row in rows if row.time is not None][-tenth:]),
        worst=_together(run, by_value[:tenth]),
        heard=_together(run, [row for row in rows if row.counted]),
        unheard=_together(run, [row for row in rows if not row.counted]),
    )


def _together(run: Results, rows: Sequence[ClientRow]) -> float | None:
    tested = [(row.value, row.weight) for row in rows if row.value is not None]
    return run.judged_by.pooled([v for v, _ in tested], [weight for _, weight in tested])


def population(run: Results) -> int:
    """How many clients there are; as many as were seen where the config does not say, or says what
    cannot be."""
    data = run.config.get("data")
    told = data.get("clients") if isinstance(data, Mapping) else None
    tested = max((1 + max(r.tested, default=-1) for r in run.evaluations), default=0)
    asked = (client for r in run.rounds for part in (r.participants, r.late) for client in part)
    seen = max(tested, 1 + max(asked, default=-1))
    return told if type(told) is int and seen <= told <= POPULATION else seen

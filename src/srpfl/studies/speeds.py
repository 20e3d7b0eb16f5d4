"""Who is slow in a run."""

from __future__ import annotations

from srpfl.runs.run import Run


def slowest_first(run: Run) -> list[int]:
    """The clients by their times in all rounds, whether they were waited for or not."""
    total: dict[int, float] = {}
    for record in run.rounds:
        for client, time in zip(
            record.participants + record.late, record.arrivals + record.late_arrivals, strict=True
        ):
            total[client] = total.get(client, 0.0) + time
    return sorted(total, key=lambda client: -total[client])

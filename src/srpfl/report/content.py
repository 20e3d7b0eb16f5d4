"""What the report shows, as plain values: all that the page's script ever asks for."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import srpfl
from srpfl.comparison import compare
from srpfl.methods import METHODS
from srpfl.records import RoundRecord, mean_times
from srpfl.report.style import DARK, DASHES, LIGHT, Style, styles
from srpfl.run import Run

ARRIVALS = 400_000  # more dots than this are thinned out, so that the page stays light
CLIENTS = 2000  # more clients than this are not shown one by one


def content(
    runs: Sequence[Run], *, folders: Sequence[str] = (), target: float | None = None
) -> dict[str, Any]:
    """Everything that the page needs to know of the runs."""
    looks = styles(runs)
    asked = sum(len(r.participants) + len(r.late) for run in runs for r in run.rounds)
    every = max(1, math.ceil(asked / ARRIVALS))
    places = folders or [""] * len(runs)
    shown = [
        _run(run, look, place, every) for run, look, place in zip(runs, looks, places, strict=True)
    ]
    return {
        "version": srpfl.__version__,
        "target": common_target(runs) if target is None else target,
        "thinned": every,
        "palette": {"light": LIGHT, "dark": DARK, "dashes": DASHES},
        "runs": shown,
    }


def common_target(runs: Sequence[Run]) -> float | None:
    """The target that a comparison of the runs would take; None before the first evaluation."""
    evaluated = [run for run in runs if run.accuracy]
    return compare(evaluated, communication=()).target if evaluated else None


def _run(run: Run, look: Style, folder: str, every: int) -> dict[str, Any]:
    known = METHODS.get(run.name)
    real = run.real
    return {
        "label": look.label,
        "group": look.group,
        "slot": look.slot,
        "name": run.name,
        "twin": known.twin if known else None,
        "folder": folder,
        "headline": run.headline,
        "seed": run.config["seed"],
        "planned": run.config["rounds"],
        "over": is_over(run),
        "communication": run.communication,
        # A policy that looks at C would have trained otherwise at another C, and on real clients
        # communication is a part of the time that was measured.
        "fixed": bool(run.config.get("sees_communication")) or real,
        "unit": time_unit([run]),
        "real": real,
        "rounds": [_round(record, every) for record in run.rounds],
        "curves": _curves(run),
        "clients": _clients(run),
        "counts": _few(run.counts),
        "command": command(run.config),
        "config": dict(run.config),
    }


def is_over(run: Run) -> bool:
    """Whether the run has played all its rounds or come to its target."""
    stop = run.config.get("stop_at")
    done = len(run.rounds) >= run.config["rounds"]
    return done or (stop is not None and any(point.mean >= stop for point in run.accuracy))


def _round(record: RoundRecord, every: int) -> dict[str, Any]:
    clients = [*record.participants, *record.late]
    times = [*record.arrivals, *record.late_arrivals]
    kept = range(record.round % every, len(clients), every)
    decision = {
        name: _short(value) if isinstance(value, float) else value
        for name, value in record.decision.items()
        if isinstance(value, (int, float, str, bool))
    }
    return {
        "stage": record.stage,
        "wait": record.wait,
        "asked": record.asked,
        "counted": len(record.participants),
        "duration": _short(record.duration, 7),
        "computing": record.computing,
        "clients": [clients[place] for place in kept],
        "times": [_short(times[place]) for place in kept],
        "waited": sum(place < len(record.participants) for place in kept),
        **({"decision": decision} if decision else {}),
    }


def _curves(run: Run) -> dict[str, Any]:
    kinds = dict.fromkeys([run.headline, *(record.kind for record in run.evaluations)])
    found = {kind: [r for r in run.evaluations if r.kind == kind] for kind in kinds}
    return {
        kind: {
            "round": [record.round for record in records],
            "computing": [record.computing for record in records],
            "accuracy": [record.accuracy for record in records],
        }
        for kind, records in found.items()
        if records
    }


@dataclass(frozen=True)
class ClientRow:
    """What became of one client in a run."""

    client: int
    time: float | None  # mean of its answers; None: it was never seen to answer
    accuracy: float | None  # at the last evaluation
    tested: int
    counted: int  # rounds
    late: int


def client_rows(run: Run) -> list[ClientRow]:
    """A row for each client, from the fastest to the slowest; those never seen come last."""
    headline = [record for record in run.evaluations if record.kind == run.headline]
    last = headline[-1] if headline else None
    counted = Counter(client for record in run.rounds for client in record.participants)
    late = Counter(client for record in run.rounds for client in record.late)
    times = mean_times(run.rounds)
    rows = [
        ClientRow(
            client,
            times.get(client),
            last.clients[client] if last and last.tested[client] else None,
            last.tested[client] if last else 0,
            counted[client],
            late[client],
        )
        for client in range(run.config["data"]["clients"])
    ]
    return sorted(rows, key=lambda row: math.inf if row.time is None else row.time)


def halves(rows: Sequence[ClientRow]) -> tuple[float | None, float | None]:
    """Accuracy of the faster and of the slower half, weighted by test points."""
    half = len(rows) // 2
    return _mean(rows[:half]), _mean(rows[len(rows) - half :])


def _mean(rows: Sequence[ClientRow]) -> float | None:
    points = sum(row.tested for row in rows if row.accuracy is not None)
    right = sum(row.accuracy * row.tested for row in rows if row.accuracy is not None)
    return right / points if points else None


def _clients(run: Run) -> list[list[float | int | None]]:
    """The rows in the order that the page's script knows."""
    if run.config["data"]["clients"] > CLIENTS:
        return []
    return [
        [row.client, _short(row.time), _short(row.accuracy), row.tested, row.counted, row.late]
        for row in client_rows(run)
    ]


def command(config: Mapping[str, Any]) -> str | None:
    """The command that plays this run again; None where it was not started by one."""
    from srpfl.config import Config

    fields = {field.name: field.default for field in dataclasses.fields(Config)}
    options = config.get("options")
    if not options or not set(options) <= set(fields):
        return None
    words = ["srpfl", "run"]
    for name, value in options.items():
        if value == fields[name] and name not in ("method", "data", "seed"):
            continue
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    return shlex.join(words)


def _few(counts: Any) -> Any:
    return counts if counts is None or len(counts) <= CLIENTS else None


def time_unit(runs: Sequence[Run]) -> str:
    """Seconds where the clock has them; the exponential clocks count in units of their own."""
    kinds = {_kind(run, "clock") for run in runs}
    return "s" if kinds and kinds <= {"RealTime", "DeviceProfiles"} else "clock units"


def _kind(run: Run, choice: str) -> str:
    value = run.config.get(choice)
    return str(value.get("kind", "")) if isinstance(value, Mapping) else ""


@overload
def _short(value: float, digits: int = 4) -> float: ...
@overload
def _short(value: None, digits: int = 4) -> None: ...
def _short(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")

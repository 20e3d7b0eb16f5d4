"""What the report shows, as plain values: all that the page's script ever asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, overload

from srpfl.errors import ConfigError, SrpflError
from srpfl.options.command import command
from srpfl.report.palette import DARK, DARK_STEPS, DASH, LIGHT, LIGHT_STEPS
from srpfl.report.status import planned, status
from srpfl.report.style import Style, styles
from srpfl.report.units import time_unit
from srpfl.runs.clients import client_rows, fairness, halves, population
from srpfl.runs.comparison import by_group, reference, target_of
from srpfl.runs.groups import data_of
from srpfl.runs.metric import Metric
from srpfl.runs.records import EvaluationRecord, RoundRecord
from srpfl.runs.results import Results

ARRIVALS = 600_000  # more dots than this are thinned out, so that the page stays light
VALUES = 400_000  # and so are evaluations, client by client
CLIENTS = 2000  # more clients than this are not shown one by one
WORDS = 200  # characters of a text in a record


def content(
    runs: Sequence[Results],
    *,
    folders: Sequence[str] = (),
    target: float | None = None,
    baseline: str | None = None,
    title: str | None = None,
) -> dict[str, Any]:
    """Everything that the page needs to know of the runs."""
    # Runs of different metrics or data are never shown together.
    boards = [(run.judged_by, data_of(run)) for run in runs]
    kinds = list(dict.fromkeys(boards)) or [(Metric(), "")]
    among = [[run for run, kind in zip(runs, boards, strict=True) if kind == k] for k in kinds]
    looked = [iter(styles(those)) for those in among]
    looks = [next(looked[kinds.index(kind)]) for kind in boards]
    asked = sum(len(r.participants) + len(r.late) for run in runs for r in run.rounds)
    values = sum(len(record.clients) for run in runs for record in run.evaluations)
    every = max(1, math.ceil(asked / ARRIVALS)), max(1, math.ceil(values / VALUES))
    places = folders or [""] * len(runs)
    shown = [
        {**_run(run, look, place, every), "board": kinds.index(kind)}
        for run, look, place, kind in zip(runs, looks, places, boards, strict=True)
    ]
    palette = {"light": LIGHT, "dark": DARK, "dash": DASH}
    steps = {"lightSteps": LIGHT_STEPS, "darkSteps": DARK_STEPS}
    return {
        "version": version("srpfl"),
        "made": datetime.now().astimezone().isoformat(timespec="minutes"),
        "title": title or "",
        "boards": _boards(kinds, among, target, baseline),
        "thinned": every[0],
        "palette": {**palette, **steps},
        "runs": shown,
    }


def _boards(
    kinds: Sequence[tuple[Metric, str]],
    among: Sequence[Sequence[Results]],
    target: float | None,
    baseline: str | None,
) -> list[dict[str, Any]]:
    """What is shown at a time: the runs of one metric and one data set, with a target: the one that
    is given, or the one that a comparison would take (none before the first evaluation)."""
    metrics = list(dict.fromkeys(metric for metric, _ in kinds))
    if target is not None:
        if len(metrics) > 1:
            names = ", ".join(metric.title for metric in metrics)
            raise ConfigError(f"a target is of one metric, and these runs have several: {names}")
        metrics[0].check_target(target)
    found = []
    for (metric, data), runs in zip(kinds, among, strict=True):
        evaluated = [run for run in runs if run.scores]
        board: dict[str, Any] = {
            "data": data,
            "title": metric.title,
            "axis": metric.axis,
            "share": metric.is_share,
            "higher": metric.higher_is_better,
            "pool": metric.pool,
            "target": target,
            "origin": "given" if target is not None else "",
            "caution": "",
            "baseline": None,
            "against": None,
        }
        if evaluated:
            groups = by_group(evaluated)
            base, other = reference(groups, baseline)
            goal = target_of(groups, base, other, given=target)
            board |= {"target": goal.value, "origin": goal.origin, "caution": goal.caution}
            board |= {"baseline": base, "against": other}
        found.append(board)
    return found


def _run(run: Results, look: Style, folder: str, every: tuple[int, int]) -> dict[str, Any]:
    real = run.real
    behind = fairness(run)
    return {
        "label": look.label,
        "group": look.group,
        "slot": look.slot,
        "waits": look.waits,
        "name": run.name,
        "folder": folder,
        "headline": run.headline,
        "seed": run.config["seed"],
        "planned": planned(run),
        "status": status(run, Path(folder) if folder else None),
        "communication": run.communication,
        # A policy that looks at C would have trained otherwise at another C, and on real clients
        # communication is a part of the time that was measured.
        "fixed": bool(run.config.get("sees_communication")) or real,
        "unit": time_unit([run]),
        "real": real,
        "rounds": [_round(record, every[0]) for record in run.rounds],
        "curves": _curves(run),
        "population": population(run),
        "clients": _clients(run),
        "history": _history(run, every[1]),
        "halves": halves(run),
        "behind": [behind.slowest, behind.worst, behind.heard, behind.unheard],
        "counts": _few(run.counts),
        "command": _command(run),
        "config": _shown(dict(run.config)),
    }


def _command(run: Results) -> str | None:
    """What plays the run again; nothing where its options are not such that they can be spelled."""
    options = run.config.get("options")
    try:
        return command(options) if isinstance(options, Mapping) else None
    except (SrpflError, TypeError, ValueError, KeyError, AttributeError):
        return None


def _shown(value: Any) -> Any:
    """A config as every browser reads it: JSON knows neither infinity nor NaN."""
    if isinstance(value, Mapping):
        return {str(name): _shown(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shown(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _round(record: RoundRecord, every: int) -> dict[str, Any]:
    clients = [*record.participants, *record.late]
    times = [*record.arrivals, *record.late_arrivals]
    kept = range(record.round % every, len(clients), every)
    decision = {
        name[:WORDS]: _short(value) if isinstance(value, float) else _cut(value)
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
        # Where late answers are kept: how many rounds ago each of these was asked.
        **({"ages": [record.ages[p] for p in kept if p < len(record.ages)]} if record.ages else {}),
        **({"decision": decision} if decision else {}),
    }


def _cut(value: Any) -> Any:
    return value[:WORDS] if isinstance(value, str) else value


def _curves(run: Results) -> dict[str, Any]:
    kinds = dict.fromkeys([run.headline, *(record.kind for record in run.evaluations)])
    found = {kind: [r for r in run.evaluations if r.kind == kind] for kind in kinds}
    return {
        kind: {
            "round": [record.round for record in records],
            "computing": [record.computing for record in records],
            "value": [record.value for record in records],
            **({"error": errors} if any(errors := [r.error for r in records]) else {}),
        }
        for kind, records in found.items()
        if records
    }


def _clients(run: Results) -> list[list[float | int | None]]:
    """The rows in the order that the page's script knows."""
    if population(run) > CLIENTS:
        return []
    return [
        [row.client, _short(row.time), _short(row.value), row.weight, row.counted, row.late]
        for row in client_rows(run)
    ]


def _history(run: Results, every: int) -> dict[str, Any]:
    """Each client's value at each evaluation of the headline kind, by the client's number; the
    last evaluation is always there."""
    if population(run) > CLIENTS:
        return {"round": [], "computing": [], "values": []}
    records = [record for record in run.evaluations if record.kind == run.headline]
    kept = [r for i, r in enumerate(reversed(records)) if i % every == 0][::-1]
    return {
        "round": [record.round for record in kept],
        "computing": [record.computing for record in kept],
        "values": [_values(record, population(run)) for record in kept],
    }


def _values(record: EvaluationRecord, clients: int) -> list[float | None]:
    """The value of each client that was tested, at its place."""
    found: list[float | None] = [None] * clients
    for client, value, weight in zip(record.tested, record.clients, record.weights, strict=False):
        found[client] = _short(value) if weight else None
    return found


def _few(counts: Any) -> Any:
    """Training points by client and class, where there are classes, and not too many clients."""
    return counts if counts and counts[0] and len(counts) <= CLIENTS else None


@overload
def _short(value: float, digits: int = 4) -> float: ...
@overload
def _short(value: None, digits: int = 4) -> None: ...
def _short(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")

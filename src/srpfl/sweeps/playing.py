"""Playing a sweep: what is missing is played, what is begun goes on, what is done is left alone."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from srpfl.errors import ConfigError, unknown, whole
from srpfl.options.methods import METHODS
from srpfl.sweeps.places import Orders, Share, in_turn, on_processes, on_ray
from srpfl.sweeps.plan import Options, Planned, planned, read_study
from srpfl.sweeps.result import Row, Sweep

On = Literal["processes", "turn", "ray"]
PLACES = {"processes": on_processes, "turn": in_turn, "ray": on_ray}

Watch = Callable[[Sequence[Planned]], None]  # is called again and again while runs are played


def sweep(
    study: str | Path | None = None,
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    runs: Sequence[Options] = (),
    common: Options | None = None,
    out: str | Path | None = None,
    on: On = "processes",
    workers: int | None = None,
    together: int = 1,
    watch: Watch | None = None,
) -> Sweep:
    """Play many runs, each in a folder of its own, and return what came of them.

    The runs are given by options of ``srpfl run``: each of ``runs`` with each combination of the
    ``grid``, and what all have in ``common``; or by a TOML file with these parts. They are played
    on local ``"processes"`` (as many as there are cores, unless ``workers`` says), in ``"turn"`` in
    this process, or on ``"ray"``. ``together`` runs of one algorithm share a worker and its device.
    Called again, it plays what is missing and continues what was interrupted.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = sweep(
    ...         grid={"method": ["fedavg", "fedrep"]},
    ...         common={"clients": 2, "rounds": 1, "model": "mlp"}, out=folder, on="turn",
    ...     )
    ...     [row.state for row in done.rows], len(done.compare().rows)
    (['done', 'done'], 2)
    """
    if study is not None:
        told = read_study(Path(study))
        grid, runs = {**told.get("grid", {}), **(grid or {})}, [*told.get("runs", []), *runs]
        common, out = {**told.get("common", {}), **(common or {})}, out or told.get("out")
    if out is None:
        raise ConfigError("a sweep needs a folder for its runs: out='DIR'")
    plan = planned(Path(out), grid=grid, runs=runs, common=common)
    return play(plan, Path(out), on=on, workers=workers, together=together, watch=watch)


def play(
    plan: Sequence[Planned],
    out: Path,
    *,
    on: On = "processes",
    workers: int | None = None,
    together: int = 1,
    watch: Watch | None = None,
    deadline: float | None = None,
) -> Sweep:
    """Play what is missing of some runs. After the deadline (as of ``time.perf_counter``) no new
    one is begun."""
    if on not in PLACES:
        raise unknown("place for a sweep", on, PLACES)
    for name, count in (("workers", workers), ("together", together)):
        if count is not None and whole(name, count) < 1:
            raise ConfigError(f"{name} must be at least 1, not {count}")
    states = {run.folder: run.state() for run in plan}
    errors: dict[Path, str] = {}
    missing = [run for run in plan if states[run.folder] in ("begun", "waiting")]
    orders = Orders(
        workers,
        look=lambda: watch(plan) if watch else None,
        more=lambda: deadline is None or time.perf_counter() <= deadline,
    )
    shares = shares_of(missing, together)
    for share, found in PLACES[on](shares, orders) if shares else ():
        for run, error in zip(share, found, strict=True):
            states[run.folder] = run.state() if error is None else "failed"
            if error is not None:
                errors[run.folder] = error
                states[run.folder] = "diverged" if run.state() == "diverged" else "failed"
    rows = [Row(r.folder, r.varied, states[r.folder], errors.get(r.folder)) for r in plan]
    return Sweep(out, rows)


def shares_of(missing: Sequence[Planned], together: int) -> list[Share]:
    """What one worker plays at a time: a run, and others after it whose clients do the same work,
    where several share a worker."""
    kinds: dict[Path, Any] = {}
    same: dict[Any, deque[Planned]] = {}
    for run in missing:
        known = METHODS.get(run.config.method)
        kind = (known and known.algorithm, run.config.engine, run.config.device)
        kinds[run.folder] = kind
        same.setdefault(kind, deque()).append(run)
    shares, taken = [], set[Path]()
    for run in missing:
        if run.folder not in taken:
            like = same[kinds[run.folder]]
            share = [like.popleft() for _ in range(min(together, len(like)))]
            taken |= {each.folder for each in share}
            shares.append(share)
    return shares

"""srpfl doctor: whether run folders are whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from srpfl.runs.doctor import Health


def doctor(
    runs: Annotated[
        list[Path], typer.Argument(help="folders of runs, or folders that hold several")
    ],
    mend: Annotated[bool, typer.Option("--mend", help="fix what can be fixed")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
) -> None:
    """Say whether runs are whole, what is damaged, and what can be done.

    The exit code is 1 if anything is damaged. Without --mend nothing is changed. With it, what is
    damaged is moved to a folder of its own, so that the rest can be read, compared and continued.

    Examples:

      srpfl doctor runs/first

      srpfl doctor runs --mend
    """
    from srpfl.report import find_runs
    from srpfl.runs.doctor import examine
    from srpfl.runs.doctor import mend as mended

    sick = False
    told = []
    for folder in find_runs(runs):
        health = examine(folder)
        done: list[str] = []
        if mend and any(finding.remedy for finding in health.findings):
            done = mended(folder)
        after = examine(folder) if done else health
        sick = sick or not after.whole
        told.append(_as_json(health, done, after))
        if not as_json:
            _print(health, done, after)
    if as_json:
        print(json.dumps(told))
    if sick:
        raise typer.Exit(1)


def _as_json(health: Health, done: list[str], after: Health) -> dict[str, object]:
    return {
        "run": str(health.path),
        "whole": after.whole,
        "rounds": after.rounds,
        "planned": after.planned,
        "state": after.state,
        "damage": [finding.wrong for finding in health.findings],
        "done": done,
    }


def _print(health: Health, done: list[str], after: Health) -> None:
    for finding in health.findings:
        print(f"{health.path}: {finding.wrong}")
        if not done:
            print(f"    {_advice(finding.remedy)}")
    for text in done:
        print(f"    {text}")
    if after.whole:
        goes_on = f"; a state after round {after.state}" if after.state else ""
        played = "; it is being played" if after.playing else ""
        print(f"{after.path}: whole, {after.rounds} of {after.planned} rounds{goes_on}{played}")
    else:
        print(f"{after.path}: damaged, {after.rounds} of {after.planned} rounds can be read")


def _advice(remedy: str | None) -> str:
    return f"with --mend: {remedy}" if remedy else "this cannot be fixed"

"""The table of one record, for the page: python results/pretrained/table.py gpu."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

FOLDER = Path(__file__).parent
HEAD = "| method | bytes down | bytes up | accuracy at the end | seconds to target |"


def table(name: str) -> list[str]:
    """Targets are each seed's own: fedrep's accuracy after two thirds of the rounds."""
    rows = json.loads((FOLDER / f"{name}.json").read_text())["rows"]
    targets = {}
    for row in rows:
        if row["method"] == "fedrep":
            targets[row["seed"]] = row["accuracy"][len(row["accuracy"]) * 2 // 3 - 1]
    lines = [HEAD, "|---|---|---|---|---|"]
    for method in dict.fromkeys(row["method"] for row in rows):
        its = [row for row in rows if row["method"] == method]
        times = [reached(row, targets[row["seed"]]) for row in its]
        found = [time for time in times if time is not None]
        seconds = f"{fmean(found):,.0f}" if len(found) == len(its) else "not reached"
        end = f"{100 * fmean(row['accuracy'][-1] for row in its):.1f} %"
        bytes = f"{its[0]['down']:,} | {its[0]['up']:,}"
        lines.append(f"| {method} | {bytes} | {end} | {seconds} |")
    return lines


def reached(row: dict[str, Any], target: float) -> float | None:
    points = zip(row["accuracy"], row["seconds"], strict=True)
    return next((seconds for accuracy, seconds in points if accuracy >= target), None)


if __name__ == "__main__":
    print("\n".join(table(sys.argv[1])))

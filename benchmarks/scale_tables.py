"""The tables of docs/scale.md, from what was measured: python benchmarks/scale_tables.py"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "scale"


def costs(rows: list[dict[str, Any]]) -> str:
    """What a round costs, by participants and population."""
    lines = [
        "| participants | population | rounds per CPU second | sent per round "
        "| written per checkpoint | peak memory |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        lines.append(
            f"| {row['participants']:,} | {row['population']:,} | {row['rounds_per_cpu_s']:.1f} "
            f"| {row['bytes_sent'] / 1e6:.1f} MB | {row['bytes_written'] / 1e6:.2f} MB "
            f"| {row['peak_gib']:.2f} GiB |"
        )
    return "\n".join(lines) + "\n"


def gpus(single: list[dict[str, Any]], averaged: list[dict[str, Any]]) -> str:
    """How long a round takes on so many GPUs, by the model."""
    lines = [
        "| participants | GPUs | computing | receiving | speed-up | receiving means | speed-up |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row, other in zip(single, averaged, strict=True):
        lines.append(
            f"| {row['participants']:,} | {row['gpus']} | {row['computing_s']:.2f} s "
            f"| {row['receiving_s']:.2f} s | {row['speed_up']:.1f} "
            f"| {other['receiving_s']:.2f} s | {other['speed_up']:.1f} |"
        )
    return "\n".join(lines) + "\n"


def tables() -> list[str]:
    found = [costs(json.loads((RESULTS / "costs.json").read_text()))]
    cluster = json.loads((RESULTS / "cluster.json").read_text())
    rows = (cluster[name]["rows"] for name in ("scaled", "scaled, averaged"))
    return [*found, gpus(*rows)]


if __name__ == "__main__":
    print("\n".join(tables()))

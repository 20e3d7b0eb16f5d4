"""The table of this folder's README: python results/tasks/table.py (--draw: its pictures, too)"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean

import srpfl
from srpfl.report.plots import comparison
from srpfl.runs.metric import shown

HERE = Path(__file__).parent
TARGET_ROUND = {"shakespeare": 40, "school": 20, "har": 20}


def row(name: str) -> str:
    """Over seeds: the target, both methods' time to it at C = 0 and 10, and where they end."""
    pairs = []
    for folder in sorted((HERE / name).glob("seed*")):
        pairs.append([srpfl.Run.load(folder / method) for method in ("fedrep", "srpfl")])
    metric = pairs[0][0].metric
    if "--draw" in sys.argv[1:]:
        runs = [run for pair in pairs for run in pair]
        comparison(runs, path=HERE / f"{name}.png", communication=(0.0, 10.0))
    targets = [
        next(point.mean for point in fedrep.scores if point.round == TARGET_ROUND[name])
        for fedrep, _ in pairs
    ]
    cells = [name, metric, str(len(pairs)), shown(metric, fmean(targets))]
    for cost in (0.0, 10.0):
        times = [
            [run.time_to(target, communication=cost) for run in pair]
            for pair, target in zip(pairs, targets, strict=True)
        ]
        gains = [fedrep / other for fedrep, other in times if other is not None]
        reached = f" ({len(gains)} of {len(pairs)} seeds)" if len(gains) < len(pairs) else ""
        each = f"{min(gains):.1f} to {max(gains):.1f}" if gains else "not reached"
        cells.append(f"{each}{reached}")
    for place in (0, 1):
        cells.append(shown(metric, fmean(pair[place].scores[-1].mean for pair in pairs)))
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    for name in TARGET_ROUND:
        if (HERE / name).exists():
            print(row(name))

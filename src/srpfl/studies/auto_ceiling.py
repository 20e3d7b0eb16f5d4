"""What could be had at all: the best of the family is known only afterwards, and partly lucky.

Each problem is replayed with other batches. Somebody who has seen all replays but one picks the
member of the family that was fastest in them, and is judged in the one that is left, as Auto is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from srpfl.errors import ConfigError
from srpfl.studies.auto_cells import Cell, Row, cells, judged
from srpfl.studies.auto_settings import Setting

MOST = 20.0  # a member that misses the target counts as so many times as slow as the best


def ceiling(rows: Sequence[Row]) -> dict[str, Any]:
    """The bar, replay by replay, for those who pick from the other replays and for Auto; and on the
    means over all replays, in which luck is averaged out."""
    picked: dict[str, list[float]] = {"picked for C and target": [], "picked for C": []}
    for same in _problems(rows).values():
        if len(same) < 2:
            raise ConfigError("picking from other replays takes at least two of them")
        for left in range(len(same)):
            others = [
                cell for place, row in enumerate(same) if place != left for cell in cells([row])
            ]
            for cell in cells([same[left]]):
                seen = [other for other in others if other.communication == cell.communication]
                if not seen:
                    continue  # elsewhere the start was at the target
                aimed = [other for other in seen if other.target == cell.target]
                picked["picked for C and target"].append(cell.ratio(_pick(aimed or seen)))
                picked["picked for C"].append(cell.ratio(_pick(seen)))
                for name in _autos(cell):
                    picked.setdefault(name, []).append(cell.ratio(name))
    means = [cell for same in _problems(rows).values() for cell in cells(same)]
    return {
        **{name: judged(ratios) for name, ratios in picked.items() if ratios},
        **{
            f"{name}, on means": judged([cell.ratio(name) for cell in means])
            for name in _autos(means[0])
        },
        "cells": len(picked["picked for C"]),
        "cells, on means": len(means),
    }


def _pick(seen: Sequence[Cell]) -> str:
    """The member with the least mean of log(time / best time)."""

    def behind(name: str) -> float:
        return fmean(math.log(min(MOST, cell.ratio(name))) for cell in seen)

    return min((name for name in seen[0].times if not name.startswith("auto")), key=behind)


def _autos(cell: Cell) -> Iterator[str]:
    return (name for name in cell.times if name.startswith("auto"))


def _problems(rows: Sequence[Row]) -> dict[tuple[Setting, int], list[Row]]:
    found: dict[tuple[Setting, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row.setting, row.seed), []).append(row)
    return found

"""Names and colours of runs: the same in every plot, page and paper.

A colour is a family: methods that differ in nothing but whom they wait for. A dashed line waits
for everyone, a full one does not. What has no colour left has marks on its line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from srpfl.options.methods import METHODS
from srpfl.report.palette import DARK, DASH, LIGHT, MARKS
from srpfl.runs.groups import family, groups_of, waits
from srpfl.runs.results import Results

# The slot that a family prefers, so that it looks alike in every report.
PREFERRED = {"FedRep": 0, "FedAvgFT": 1, "LGFedAvg": 2, "HFMAML": 3, "FedAvg": 4}


@dataclass(frozen=True)
class Style:
    """How one run is shown. Runs that differ in nothing but the seed form a group."""

    label: str
    group: str
    slot: int
    waits: bool = False

    @property
    def light(self) -> str:
        return LIGHT[self.slot % len(LIGHT)]

    @property
    def dark(self) -> str:
        return DARK[self.slot % len(DARK)]

    @property
    def dash(self) -> str:
        return DASH if self.waits else ""

    @property
    def mark(self) -> str:
        return MARKS[self.slot // len(LIGHT) % len(MARKS)]


def styles(runs: Sequence[Results]) -> list[Style]:
    """A style for each run: a colour for each family, a label for each run."""
    groups = groups_of(runs)
    slots = _slots(runs, groups)
    labels: list[str] = []
    for run, group in zip(runs, groups, strict=True):
        seeds = {str(r.config["seed"]) for r, g in zip(runs, groups, strict=True) if g == group}
        label = f"{group}, seed {run.config['seed']}" if len(seeds) > 1 else group
        again = sum(1 for other in labels if other == label or other.startswith(f"{label} #"))
        labels.append(f"{label} #{again + 1}" if again else label)
    return [
        Style(label, group, slots[group], waits(run))
        for label, group, run in zip(labels, groups, runs, strict=True)
    ]


def slot_of(method: str) -> int:
    """The colour of a method of the literature, by its name.

    >>> slot_of("srpfl") == slot_of("fedrep") == 0
    True
    """
    known = METHODS.get(method)
    return PREFERRED.get(known.algorithm.__name__, len(PREFERRED)) if known else len(PREFERRED)


def _slots(runs: Sequence[Results], groups: Sequence[str]) -> dict[str, int]:
    """A slot for each group. The first of a family that waits and the first that does not share
    one; others of the family need their own, or nothing would tell them apart."""
    shared: dict[tuple[str, bool], str] = {}
    known_first = sorted(zip(runs, groups, strict=True), key=lambda one: one[0].name not in METHODS)
    for run, group in known_first:
        shared.setdefault((family(run), waits(run)), group)
    colours: dict[str, int] = {}
    slots: dict[str, int] = {}
    later: dict[str, str] = {}
    for run, group in zip(runs, groups, strict=True):
        if group in slots or group in later:
            continue
        kind = family(run)
        if shared[kind, waits(run)] != group:
            later[group] = group
        elif kind in PREFERRED:
            slots[group] = colours.setdefault(kind, PREFERRED[kind])
        else:
            later[group] = kind
    taken = {*slots.values()}
    free = iter([slot for slot in range(len(runs) + len(PREFERRED) + 1) if slot not in taken])
    for group, kind in later.items():
        if kind not in colours:
            colours[kind] = next(free)
        slots[group] = colours[kind]
    return slots

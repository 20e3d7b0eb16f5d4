"""Names and colours of runs: the same in every plot, page and paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from srpfl.comparison import groups_of
from srpfl.run import Run

# Okabe and Ito's colours, with black and yellow (each invisible on one of the two grounds)
# replaced. The tests hold every pair apart for all kinds of colour vision, on both grounds.
LIGHT = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D", "#9E117A"]
DARK = ["#2D76E4", "#D24433", "#17E57E", "#DE8299", "#F7CB37", "#A7D1FC", "#F0F0F0", "#9A5690"]
DASHES = ["", "6 3", "2 3", "8 3 2 3"]  # beyond eight methods, in SVG's notation

# The slot that a method prefers, so that it looks alike in every report.
PREFERRED = {
    "srpfl": 0,
    "fedrep": 1,
    "flanp": 2,
    "fedavg": 3,
    "lg-srpfl": 4,
    "lg-fedavg": 5,
    "hf-maml": 6,
    "fedavg-ft": 7,
    "flanp-ft": 8,
}


@dataclass(frozen=True)
class Style:
    """How one run is shown. Runs that differ in nothing but the seed form a group."""

    label: str
    group: str
    slot: int

    @property
    def light(self) -> str:
        return LIGHT[self.slot % len(LIGHT)]

    @property
    def dark(self) -> str:
        return DARK[self.slot % len(DARK)]

    @property
    def dash(self) -> str:
        return DASHES[self.slot // len(LIGHT) % len(DASHES)]


def styles(runs: Sequence[Run]) -> list[Style]:
    """A style for each run: a colour for each group, a label for each run."""
    groups = groups_of(runs)
    slots = _slots(runs, groups)
    labels: list[str] = []
    for run, group in zip(runs, groups, strict=True):
        seeds = {str(r.config["seed"]) for r, g in zip(runs, groups, strict=True) if g == group}
        label = f"{group}, seed {run.config['seed']}" if len(seeds) > 1 else group
        again = sum(1 for other in labels if other == label or other.startswith(f"{label} #"))
        labels.append(f"{label} #{again + 1}" if again else label)
    return [Style(label, group, slots[group]) for label, group in zip(labels, groups, strict=True)]


def _slots(runs: Sequence[Run], groups: Sequence[str]) -> dict[str, int]:
    slots: dict[str, int] = {}
    later = []
    for run, group in zip(runs, groups, strict=True):
        if group in slots or group in later:
            continue
        wish = PREFERRED.get(run.name)
        if wish is not None and wish not in slots.values():
            slots[group] = wish
        else:
            later.append(group)
    free = (slot for slot in range(len(runs) + len(PREFERRED)) if slot not in slots.values())
    for group, slot in zip(later, list(free), strict=False):
        slots[group] = slot
    return slots

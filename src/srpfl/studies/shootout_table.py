"""What the shoot-out found: a table, a page, a picture, and a check of all that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes

from srpfl.report.drawing import INK, SOFT, colour, panels, save
from srpfl.studies.shootout import MARK, POLICIES, SETTINGS, Line, key, lines

PAGE, PICTURE = "README.md", "shootout.png"
# The picture's panels: a setting, a C, and what the reader is to think of.
PANELS = [
    ("digits-fixed", 0.0, "fixed speeds,\nfree communication"),
    ("digits-fixed", 100.0, "fixed speeds,\ncostly communication"),
    ("digits-dynamic", 0.0, "changing speeds,\nfree communication"),
    ("har", 0.0, "activity by person,\nfixed speeds"),
    ("femnist", 0.0, "handwriting by writer,\nchanging speeds"),
    ("digits-sampled", 0.0, "10 of 60\nat a time"),
    ("femnist-sampled", 0.0, "40 of 376 writers\nat a time"),
    ("digits-phones", 0.0, "phones that\ncome and go"),
    ("cifar10-50", 0.0, "CIFAR-10,\nfixed speeds"),
]
INTRODUCTION = (
    "Time to the accuracy that waiting for everyone reaches after 40 % of its rounds, and what it "
    "costs. All policies of a setting have the same data, model and seeds, and about as many local "
    "updates that count. Times are means over seeds; where not every seed got there, the table "
    "says how many did. `srpfl shootout` plays what is missing, `srpfl reproduce --check results/` "
    "rebuilds this page.\n"
)
FASTER, SLOWER, NEVER = colour(0), colour(1), SOFT


@dataclass(frozen=True)
class Row:
    """A policy in a setting, over all seeds."""

    policy: str
    time: float | None  # to the target; None where some seed did not get there
    speedup: float | None  # over everyone
    reached: int  # seeds that got there ...
    seeds: int  # ... of so many
    final: float
    worst: float
    slow: float
    megabytes: float
    wasted: float  # share of asks whose work did not count


def rows(name: str, found: Sequence[Line], cost: float) -> list[Row]:
    """The table of a setting for one C; every seed has a target of its own."""
    found = [line for line in _at(found, cost) if "diverged" not in line]
    everyone = {line["seed"]: line for line in found if line["policy"] == "everyone"}
    targets = {seed: _target(line) for seed, line in everyone.items()}
    table = []
    for policy in SETTINGS[name].played:
        mine = [line for line in found if line["policy"] == policy and line["seed"] in targets]
        if not mine:
            continue
        times = [_time_to(line, targets[line["seed"]], cost) for line in mine]
        reached = [time for time in times if time is not None]
        base = [_time_to(everyone[line["seed"]], targets[line["seed"]], cost) for line in mine]
        time = fmean(reached) if len(reached) == len(times) else None
        known = [each for each in base if each is not None]
        table.append(
            Row(
                policy,
                time,
                fmean(known) / time if time else None,
                len(reached),
                len(mine),
                fmean(line["final"] for line in mine),
                fmean(line["worst"] for line in mine),
                fmean(line["slow"] for line in mine),
                fmean(line["megabytes"] for line in mine),
                fmean((line["dropped"] + line["lost"]) / max(1, line["asked"]) for line in mine),
            )
        )
    return table


def _at(found: Sequence[Line], cost: float) -> list[Line]:
    """The runs that count for this C: of a policy that does not look at it, all."""
    return [line for line in found if line["C"] == cost or not POLICIES[line["policy"]].sees_cost]


def _target(line: Line) -> float:
    last = line["curve"][-1][0]
    return float(max(value for round, _, value in line["curve"] if round <= MARK * last + 1))


def _time_to(line: Line, target: float, cost: float) -> float | None:
    """By a straight line between evaluations, as everywhere; ``charged`` is C by round or, where
    it is in the clients' own times, nothing."""
    each = cost if line["charged"] == line["C"] else 0.0
    before = (0.0, 0.0)
    for round, computing, value in line["curve"]:
        now = computing + each * round
        if value >= target:
            share = (target - before[1]) / (value - before[1]) if value > before[1] else 1.0
            return float(before[0] + share * (now - before[0]))
        before = (now, value)
    return None


def build(out: Path) -> str:
    """The page with all tables that the records allow."""
    text = [
        "# The shoot-out\n",
        INTRODUCTION,
        f"![speed-up over waiting for everyone]({PICTURE})\n",
    ]
    for name, setting in SETTINGS.items():
        found = lines(out, name)
        for cost in setting.costs if found else ():
            seeds = len({line["seed"] for line in found})
            text.append(f"## {setting.title}, C = {cost:g} ({name}, seeds: {seeds})\n")
            text.append(
                "| policy | seeds | time | speed-up | final | worst tenth | slow half | MB "
                "| thrown away |"
            )
            text.append("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
            text += [_told(row) for row in rows(name, found, cost)]
            text += ["", _played_by(_at(found, cost))]
        ended = [line for line in found if "diverged" in line]
        text += [f"Diverged: {'; '.join(map(_which, ended))}.\n"] if ended else []
        absent = missing(name, found)
        text += [f"Not played yet: {'; '.join(absent)}.\n"] if absent else []
    return "\n".join(text)


def missing(name: str, found: Sequence[Line]) -> list[str]:
    """What of a setting that was begun has no run: policies with their seeds and C."""
    setting, there = SETTINGS[name], {key(line) for line in found}
    absent = []
    for policy in setting.played if found else ():
        label = POLICIES[policy].label
        for cost in setting.costs if POLICIES[policy].sees_cost else setting.costs[:1]:
            seeds = sorted(
                {line["seed"] for line in found if (policy, line["seed"], cost) not in there}
            )
            if seeds:
                told = ", ".join(map(str, seeds))
                absent.append(f"{label} with C = {cost:g} and seeds {told}")
    return absent


def _played_by(found: Sequence[Line]) -> str:
    """Which code played which policies, as their notes say."""
    by_note: dict[str, list[str]] = {}
    for line in found:
        names = by_note.setdefault(line.get("note", "an older version"), [])
        label = POLICIES[line["policy"]].label
        names += [] if label in names else [label]
    most = max(by_note, key=lambda note: len(by_note[note]), default="")
    told = [
        f"{'all others' if note == most else ', '.join(names)} at {note}"
        for note, names in sorted(by_note.items(), key=lambda item: item[0] == most)
    ]
    return f"Played: {'; '.join(told)}.\n" if len(told) > 1 else f"Played at {most}.\n"


def _which(line: Line) -> str:
    return f"{POLICIES[line['policy']].label} with C = {line['C']:g} and seed {line['seed']}"


def _told(row: Row) -> str:
    time = f"{row.reached} of {row.seeds}" if row.time is None else f"{row.time:.1f}"
    speedup = "–" if row.speedup is None else f"{row.speedup:.2f}"
    shares = (row.final, row.worst, row.slow)
    told = [time, speedup, *(f"{100 * share:.1f} %" for share in shares)]
    return (
        f"| {POLICIES[row.policy].label} | {row.seeds} | {' | '.join(told)} | {row.megabytes:.1f} "
        f"| {100 * row.wasted:.0f} % |"
    )


ROOM = 2.5  # times the longest bar: its number stands behind it


def draw(out: Path) -> None:
    """How many times as fast as waiting for everyone: a bar for each policy, a panel for each
    situation."""
    played = [(name, cost, title) for name, cost, title in PANELS if lines(out, name)]
    if not played:
        return
    names = [name for name in POLICIES if name != "everyone"]
    figure, axes = panels(len(played), size=(3.4, 4.4))
    tables = [{r.policy: r for r in rows(name, lines(out, name), cost)} for name, cost, _ in played]
    bars = [row.speedup or 1.0 for table in tables for row in table.values()]
    for each, table, (_, _, title) in zip(axes, tables, played, strict=True):
        _bars(each, names, table)
        each.set_xlim(0.08, max(10.0, *bars) * ROOM)
        each.set_title(title)
        each.grid(visible=False)
        each.set_ylim(len(names) - 0.5, -0.5)
        each.set_yticks(range(len(names)), [POLICIES[name].label for name in names])
    figure.suptitle("How many times as fast as waiting for everyone (to the same accuracy)")
    save(figure, out / PICTURE)


def _bars(axes: Axes, names: Sequence[str], table: Mapping[str, Row]) -> None:
    axes.axvline(1, color=INK, linewidth=1)
    axes.set_xscale("log")
    axes.set_xticks([0.1, 1, 10, 100, 1000], ["0.1", "1", "10", "100", "1000"])
    axes.minorticks_off()
    for place, name in enumerate(names):
        row = table.get(name)
        if row is None:
            why = "nothing to select" if POLICIES[name].selects else "not played"
            axes.text(1.1, place, why, va="center", fontsize=8, color=NEVER)
        elif row.speedup is None:
            why = f"{row.reached} of {row.seeds} get there" if row.reached else "does not get there"
            axes.text(1.1, place, why, va="center", fontsize=8, color=SLOWER)
        else:
            colour = FASTER if row.speedup >= 1 else SLOWER
            left, right = min(1.0, row.speedup), max(1.0, row.speedup)
            axes.barh(place, right - left, left=left, color=colour, height=0.65)
            told = f"{float(f'{row.speedup:.2g}'):g}"  # two digits, and 880 is not 8.8e+02
            axes.text(right * 1.08, place, told, va="center", fontsize=9, color=colour)


def write(out: Path) -> None:
    """Page and picture."""
    (out / PAGE).write_text(build(out))
    draw(out)


def check(out: Path) -> list[str]:
    """What is wrong with the records of a shoot-out; page and picture are rebuilt."""
    wrong = []
    for name in SETTINGS:
        found = lines(out, name)
        if len({key(line) for line in found}) < len(found):
            wrong.append(f"{out / name}.jsonl holds a run twice")
        if any(line["policy"] not in SETTINGS[name].played for line in found):
            wrong.append(f"{out / name}.jsonl holds a policy that is not of this setting")
        wrong += [f"{name}: {text}" for line in found for text in _faults(line)]
    page = out / PAGE
    if not page.exists() or page.read_text() != build(out):
        wrong.append(f"{page} does not follow from the records")
    write(out)
    return wrong


def _faults(line: Line) -> list[str]:
    """What a run's line contradicts."""
    if "diverged" in line:
        return []
    who = f"{line['policy']}, seed {line['seed']}"
    times = [time for _, time, _ in line["curve"]]
    wrong = []
    if times != sorted(times) or not times:
        wrong.append(f"{who}: times go back")
    if line["counted"] + line["dropped"] + line["lost"] > line["asked"]:
        wrong.append(f"{who}: more answers than asks")
    return wrong


def verdict(out: Path) -> dict[str, Any]:
    """The tables as JSON."""
    return {
        name: {
            f"C = {cost:g}": [asdict(row) for row in rows(name, lines(out, name), cost)]
            for cost in setting.costs
        }
        for name, setting in SETTINGS.items()
        if lines(out, name)
    }

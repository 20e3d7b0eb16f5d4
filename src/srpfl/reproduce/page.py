"""What a figure's folder shows: claims, tables, the figure itself; and whether they are true."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from srpfl.errors import RunFolderError
from srpfl.reproduce.figure import draw
from srpfl.reproduce.findings import claims_table, findings, found_in
from srpfl.reproduce.grid import DATASETS, FIGURES, TRAININGS
from srpfl.reproduce.paired import paired_with_twins
from srpfl.reproduce.summary import COSTS, Row, as_json, table
from srpfl.runs.files import write_text
from srpfl.runs.folder import CONFIG, DIVERGED
from srpfl.runs.run import Run

CLAIMS = "claims.md"  # beside the figures' folders
OVERVIEW = """# The paper's claims, panel by panel

Made from the records by `srpfl reproduce --check`. A speed-up is to the twin's accuracy after
40/150 of the rounds, at C = 0 or from C = 0 to 100. Ends and gaps are in points of accuracy, those
of slow clients the slowest half less the fastest (they may lose one point). Where three seeds or
more are paired, ± is the deviation of their differences and p that of a t-test; elsewhere there
are too few seeds for one, and a gap of less than a point means nothing.
"""

Ends = dict[str, dict[str, str]]  # by data set and run, why it could not be finished


def write(out: Path, figure: str, note: Mapping[str, Any] | None = None) -> list[str]:
    """Write claims, tables and the figure from the runs that are there; say which files."""
    folder = out / figure
    panels, ends = read(folder), diverged(folder)
    if not panels:
        broken = [
            f"; {name} diverged: {why}" for runs in ends.values() for name, why in runs.items()
        ]
        raise RunFolderError(f"{folder} holds no finished runs" + "".join(broken))
    files = build(figure, panels, ends)
    if note is not None:
        files["claims.json"] = _dump(claims(figure, panels, folder, note))
    for name, text in files.items():
        write_text(folder / name, text)
    draw(panels, folder / "figure.png", title=describe(figure))
    write_text(out / CLAIMS, overview({f.name: read(f) for f in _folders(out)}))
    return [*files, "figure.png"]


def build(figure: str, panels: Mapping[str, Sequence[Run]], ends: Ends) -> dict[str, str]:
    """The texts that follow from the records alone, by file name."""
    tables = {dataset: table(runs) for dataset, runs in panels.items()}
    return {
        "table.json": _dump({dataset: as_json(rows) for dataset, rows in tables.items()}),
        "table.csv": _csv(tables),
        "README.md": _markdown(figure, panels, tables, ends),
    }


def read(folder: Path) -> dict[str, list[Run]]:
    """The finished runs by data set, in the paper's order."""
    panels: dict[str, list[Run]] = {}
    places = sorted(folder.glob(f"*/*/{CONFIG}"))
    for config in places:
        run = Run.load(config.parent)
        if len(run.rounds) == run.config["rounds"]:
            panels.setdefault(config.parent.parent.name, []).append(run)
    order = [*DATASETS, *sorted(panels.keys() - set(DATASETS))]
    methods = list(TRAININGS)
    return {
        dataset: sorted(panels[dataset], key=lambda r: (methods.index(r.name), r.config["seed"]))
        for dataset in order
        if dataset in panels
    }


def diverged(folder: Path) -> Ends:
    """The runs that could not be finished, by data set, and what became of them."""
    ends: Ends = {}
    for note in sorted(folder.glob(f"*/*/{DIVERGED}")):
        text = note.read_text().strip().removeprefix("training diverged: ")
        why, *_ = text.split(":")  # what to do about it is for those who ran it
        ends.setdefault(note.parent.parent.name, {})[note.parent.name] = why
    return ends


def claims(
    figure: str, panels: Mapping[str, Sequence[Run]], folder: Path, note: Mapping[str, Any]
) -> dict[str, Any]:
    """What the folder says that it holds, with a note of how each panel came about."""
    path = folder / "claims.json"
    notes = json.loads(path.read_text())["notes"] if path.exists() else []
    held: dict[str, Any] = {}
    for dataset, runs in panels.items():
        held[dataset] = {
            run.name: sorted(int(r.config["seed"]) for r in runs if r.name == run.name)
            for run in runs
        }
    return {
        "figure": figure,
        "setting": describe(figure),
        "rounds": sorted({int(run.config["rounds"]) for runs in panels.values() for run in runs}),
        "clients": sorted(
            {int(run.config["data"]["clients"]) for runs in panels.values() for run in runs}
        ),
        "runs": held,
        "diverged": diverged(folder),
        "notes": [*notes, dict(note)],
    }


def check(out: Path) -> list[str]:
    """Everything that is wrong with a folder of results; rebuilds every table and figure."""
    wrong: list[str] = []
    figures: dict[str, dict[str, list[Run]]] = {}
    for folder in _folders(out):
        panels, ends = read(folder), diverged(folder)
        figures[folder.name] = panels
        wrong += _against_claims(folder, panels, ends)
        if not panels:
            wrong.append(f"{folder} holds no finished runs")
        for dataset, runs in panels.items():
            for run in runs:
                wrong += [f"{folder.name}/{dataset}/{_label(run)}: {text}" for text in faults(run)]
        for name, text in build(folder.name, panels, ends).items():
            path = folder / name
            if not path.exists() or path.read_text() != text:
                wrong.append(f"{path} does not follow from the records")
                write_text(path, text)
        if panels:
            draw(panels, folder / "figure.png", title=describe(folder.name))
    if not figures:
        return [f"{out} holds no figure ({', '.join(FIGURES)})"]
    text = overview(figures)
    if not (out / CLAIMS).exists() or (out / CLAIMS).read_text() != text:
        wrong.append(f"{out / CLAIMS} does not follow from the records")
        write_text(out / CLAIMS, text)
    return wrong


def overview(figures: Mapping[str, Mapping[str, Sequence[Run]]]) -> str:
    """All claims of the paper in one table, for all panels that there are."""
    found = {
        f"{figure} {dataset}": found_in(table(runs), paired_with_twins(runs))
        for figure, panels in figures.items()
        for dataset, runs in panels.items()
    }
    return "\n".join([OVERVIEW, *claims_table(found), ""])


def _folders(out: Path) -> list[Path]:
    return [out / figure for figure in FIGURES if (out / figure).is_dir()]


def _against_claims(folder: Path, panels: Mapping[str, Sequence[Run]], ends: Ends) -> list[str]:
    path = folder / "claims.json"
    if not path.exists():
        return [f"{path} is missing"]
    wrong = []
    claimed = json.loads(path.read_text())
    if claimed.get("diverged", {}) != ends:
        wrong.append(f"{path} does not name the runs that diverged as their folders do")
    for dataset, methods in claimed["runs"].items():
        for method, seeds in methods.items():
            held = [r.config["seed"] for r in panels.get(dataset, []) if r.name == method]
            if sorted(held) != seeds:
                wrong.append(
                    f"{folder.name}/{dataset}: {method} is claimed for seeds {seeds}, "
                    f"and complete for {sorted(held)}"
                )
    return wrong


def faults(run: Run) -> list[str]:
    """What the records of one run lack, or contradict."""
    wrong, clients = [], int(run.config["data"]["clients"])
    if [record.round for record in run.rounds] != list(range(1, run.config["rounds"] + 1)):
        wrong.append("its rounds are not 1, 2, 3, ...")
    if any(len(record.participants) < min(record.wait, record.asked) for record in run.rounds):
        wrong.append("a round has fewer participants than it waited for")
    total = 0.0
    for record in run.rounds:
        total += record.duration
        if record.duration != record.arrivals[-1] or abs(total - record.computing) > 1e-6 * total:
            wrong.append(f"the clock of round {record.round} does not follow from the arrivals")
            break
    for kind in run.config["evaluations"]:
        due = [record for record in run.evaluations if record.kind == kind]
        if [record.round for record in due] != run.config["evaluate_at"]:
            wrong.append(f"its {kind} evaluations are not all there")
        if any(len(record.clients) != clients for record in due):
            wrong.append(f"a {kind} evaluation does not have {clients} clients")
    return wrong


def describe(figure: str) -> str:
    """A figure's setting in words."""
    choice = FIGURES[figure]
    speeds = "fixed speeds" if choice["clock"] == "fixed" else "dynamic speeds"
    part = "full participation" if choice["sample"] == 1 else "a fifth of the clients per round"
    return f"{part}, {speeds}"


def _label(run: Run) -> str:
    return f"{run.name}-seed{run.config['seed']}"


def _dump(value: Any) -> str:
    return json.dumps(value, indent=1) + "\n"


def _csv(tables: Mapping[str, Sequence[Row]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    by_cost = [f"{what}_C{cost:g}" for what in ("time", "speedup", "common") for cost in COSTS]
    writer.writerow(
        ["dataset", "method", "seeds", "final", "spread", "target", *by_cost, "slow", "fast"]
    )
    for dataset, rows in tables.items():
        for row in rows:
            times = [
                values.get(f"{cost:g}")
                for values in (row.time, row.speedup, row.common_time)
                for cost in COSTS
            ]
            seeds = " ".join(map(str, row.seeds))
            first = [dataset, row.method, seeds, row.final, row.spread, row.target]
            writer.writerow([*first, *times, row.slow_half, row.fast_half])
    return text.getvalue()


def _markdown(
    figure: str,
    panels: Mapping[str, Sequence[Run]],
    tables: Mapping[str, Sequence[Row]],
    ends: Ends,
) -> str:
    lines = [f"# {figure}: {describe(figure)}", "", "![accuracy against time](figure.png)", ""]
    lines += [
        "Made from the records in this folder by `srpfl reproduce --check`; `claims.json` says how "
        "the runs came about. Times are simulated. A method's target is its twin's accuracy (its "
        "own, where it has none) after 40/150 of the rounds, seed by seed; the common target is "
        "fedrep's.",
        "",
    ]
    for dataset in sorted(ends.keys() - tables.keys()):
        lines += [f"## {dataset}", "", *_broken(ends[dataset]), ""]
    for dataset, rows in tables.items():
        clients = panels[dataset][0].config["data"]["clients"]
        lines += [
            f"## {dataset} ({clients} clients, {panels[dataset][0].config['rounds']} rounds)",
            "",
            "| method | seeds | final accuracy | target | "
            + " | ".join(f"time, C = {cost:g}" for cost in COSTS)
            + " | "
            + " | ".join(f"speed-up, C = {cost:g}" for cost in COSTS)
            + " | common target, C = 0 | slow half | fast half |",
            "|---|---|---|---|" + "---|" * (2 * len(COSTS) + 3),
        ]
        lines += [_markdown_row(row) for row in rows]
        lines += ["", *findings(dataset, rows), *_broken(ends.get(dataset, {})), ""]
    return "\n".join(lines)


def _broken(ends: Mapping[str, str]) -> list[str]:
    return [f"- {label} **diverged**: {text}." for label, text in ends.items()]


def _markdown_row(row: Row) -> str:
    costs = [f"{cost:g}" for cost in COSTS]
    cells = [
        row.method,
        str(len(row.seeds)),
        f"{100 * row.final:.2f} ± {100 * row.spread:.2f}"
        if len(row.seeds) > 1
        else f"{100 * row.final:.2f}",
        f"{100 * row.target:.2f}",
        *(_time(row.time[cost]) for cost in costs),
        *(_ratio(row.speedup.get(cost)) for cost in costs),
        _time(row.common_time["0"]),
        f"{100 * row.slow_half:.2f}",
        f"{100 * row.fast_half:.2f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _time(value: float | None) -> str:
    return "not reached" if value is None else f"{value:.1f}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"

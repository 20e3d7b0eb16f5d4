"""A number in the README is one that the committed records give."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

import srpfl

ROOT = Path(__file__).parents[2]
PAIR = ("fedrep", "srpfl")


def test_the_readmes_numbers_are_those_of_the_results() -> None:
    table = json.loads((ROOT / "results" / "fig3" / "table.json").read_text())["cifar10"]
    rows = {row["method"]: row for row in table}
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert len(rows["srpfl"]["seeds"]) == 3
    assert f"in 1/{rows['srpfl']['speedup']['0']:.1f} of the time" in readme
    gap = 100 * (rows["fedrep"]["final"] - rows["srpfl"]["final"])
    assert f"ends {gap:.2f} points below FedRep (three seeds)" in readme


def test_the_readme_says_how_the_gain_depends_on_the_target() -> None:
    folder = ROOT / "results" / "fig3" / "cifar10"
    runs = {m: [srpfl.Run.load(folder / f"{m}-seed{s}") for s in range(3)] for m in PAIR}
    gains = []
    for round in (20, 40, 60, 120):
        times: dict[str, list[float]] = {method: [] for method in PAIR}
        for seed in range(3):
            scores = runs["fedrep"][seed].scores
            target = next(point.value for point in scores if point.round == round)
            for method in PAIR:
                found = runs[method][seed].time_to(target, communication=0.0)
                assert found is not None
                times[method].append(found)
        gains.append(sum(times["fedrep"]) / sum(times["srpfl"]))
    twenty, forty, sixty, last = gains
    readme = " ".join((ROOT / "README.md").read_text().split())
    told = f"{twenty:.0f} times at the accuracy of FedRep's round 20, {forty:.1f} at 40, "
    assert told + f"{sixty:.1f} at 60, {last:.1f} at 120." in readme


def test_what_is_said_of_the_digits_slow_clients_is_on_record() -> None:
    folder = ROOT / "results" / "digits"
    rows = {r["method"]: r for r in json.loads((folder / "compare.json").read_text())["rows"]}
    page = (folder / "README.md").read_text()
    names = ("final", "slower_half", "slowest_tenth", "worst_tenth")
    for method, row in rows.items():
        assert len(row["seeds"]) == 5
        assert f"| {method} | {' | '.join(f'{100 * row[n]:.1f} %' for n in names)} |" in page
    gap = 100 * (rows["fedrep"]["slower_half"] - rows["srpfl"]["slower_half"])
    for text in (page, (ROOT / "README.md").read_text(), (ROOT / "results/README.md").read_text()):
        assert f"{gap:.1f} points below" in " ".join(text.split())


@pytest.mark.slow
def test_the_results_follow_from_their_records(tmp_path: Path) -> None:
    from srpfl.reproduce.page import CLAIMS, build, diverged, faults, overview, read

    figures = {}
    for folder in sorted((ROOT / "results").glob("fig*")):
        figures[folder.name] = panels = read(folder)
        assert [text for runs in panels.values() for run in runs for text in faults(run)] == []
        for name, text in build(folder.name, panels, diverged(folder)).items():
            assert (folder / name).read_text() == text, f"{folder.name}/{name}"
    assert (ROOT / "results" / CLAIMS).read_text() == overview(figures)


def test_the_tables_of_scale_are_those_of_the_measurements() -> None:
    told = [sys.executable, str(ROOT / "benchmarks" / "scale_tables.py")]
    tables = subprocess.run(told, capture_output=True, text=True, check=True).stdout
    page = (ROOT / "docs" / "scale.md").read_text()
    for table in tables.strip().split("\n\n"):
        assert table.strip() in page


def test_how_long_rounds_of_everyone_take_is_on_record() -> None:
    lines = (ROOT / "results" / "shootout" / "femnist.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if (row["policy"], row["C"]) == ("everyone", 0)]
    rounds = sorted(row["curve"][-1][1] / row["curve"][-1][0] for row in rows)
    told = f"A round of everyone takes {rounds[0]:.0f} to {rounds[-1]:.0f} times a client's mean"
    assert told in " ".join((ROOT / "docs" / "stragglers.md").read_text().split())


def test_the_deployments_table_is_that_of_its_records() -> None:
    folder = ROOT / "results" / "flower"
    text = (folder / "README.md").read_text()
    fedrep, srpfl_ = (srpfl.Run.load(folder / name) for name in ("fedrep", "srpfl"))
    for point in fedrep.accuracy:
        time = srpfl_.time_to(point.mean)
        assert time is not None
        assert time < point.time
        row = f"| {100 * point.mean:.1f} % (round {point.round}) | {point.time:.0f} s "
        assert f"{row}| {time:.0f} s | {point.time / time:.2f} |" in text


@pytest.mark.parametrize("name", ["listed", "drawn-7000", "told", "flat"])
def test_what_is_said_of_auto_is_what_its_study_gives(name: str) -> None:
    from srpfl.studies import auto_cells

    text = (ROOT / "docs" / "auto-study.md").read_text()
    rows = auto_cells.read(ROOT / "results" / "auto" / f"{name}.jsonl")
    found = auto_cells.verdict(auto_cells.cells(rows))
    for policy in (policy for policy in found if policy.startswith("auto")):
        told = found[policy]
        line = f"{100 * told['within 1.15']:.0f} % | {100 * told['above 1.5']:.0f} % | "
        assert f"| {found['cells']} | {line}{told['median']:.2f} |" in text, (policy, told)


@pytest.mark.parametrize(
    "name",
    [
        "drawn-9202",
        "means-9201",
        "means",
        "means-before",
        "means-9001",
        "means-9001-before",
        "replays",
    ],
)
def test_what_is_said_of_replays_is_what_their_study_gives(name: str) -> None:
    from srpfl.studies import auto_ceiling, auto_cells

    text = (ROOT / "docs" / "auto-study.md").read_text()
    found = auto_ceiling.ceiling(auto_cells.read(ROOT / "results" / "auto" / f"{name}.jsonl"))
    for policy in ("auto", "auto, on means"):
        told, cells = found[policy], "cells, on means" if "means" in policy else "cells"
        line = f"{100 * told['within 1.15']:.0f} % | {100 * told['above 1.5']:.0f} % | "
        assert f"| {found[cells]} | {line}{told['median']:.2f} |" in text, (policy, told)


def test_the_tables_of_speed_are_those_of_the_measurements() -> None:
    folder = ROOT / "results" / "benchmarks"
    text = (folder / "README.md").read_text()
    for name in ("plain", "rivals"):
        for found in json.loads((folder / f"{name}.json").read_text()):
            low, high = min(found["ratios"]), max(found["ratios"])
            assert f"| {found['ratio']:.1f} | {low:.1f} to {high:.1f} |" in text, found["setting"]
    population = json.loads((folder / "population.json").read_text())
    assert f"a round takes {population['ratio']:.2f} times" in text
    assert f"a peak of {population['peak_gib']:.2f} GiB" in text


def test_what_is_said_of_a_deployments_server_is_what_was_measured() -> None:
    folder = ROOT / "results" / "benchmarks"
    text = (folder / "README.md").read_text()
    rows = {row["nodes"]: row for row in json.loads((folder / "deployment.json").read_text())}
    assert list(rows) == [10, 100, 1000, 10_000]
    for row in rows.values():
        first = f"| {row['nodes']:,} | {row['asked']} | {row['answers']:,} "
        cost = f"| {row['server_cpu_s']:.1f} s | {row['cpu_ms_per_answer']:.1f} ms "
        line = f"{first}| {row['rounds_per_cpu_s']:.1f} {cost}| {row['peak_mib']:.0f} MiB |"
        assert line in text
    more = {n: rows[10_000][n] - rows[1000][n] for n in ("server_cpu_s", "peak_mib")}
    each, room = more["server_cpu_s"] / 9000, more["peak_mib"] / 9000
    said = f"{1000 * each:.1f} ms and {1024 * room:.1f} KiB for each"
    assert said in " ".join(text.split())
    assert f"{90_000 * each:.0f} s more to let 90,000 more nodes join" in text
    assert f"{90_000 * room / 1024:.2f} GiB more memory" in text
    page = " ".join((ROOT / "docs" / "deployment.md").read_text().split())
    cpu, memory = ([rows[n][what] for n in (100, 1000, 10_000)] for what in more)
    assert "take {:.1f} s of the server's CPU with 100 nodes, {:.1f} s".format(*cpu) in page
    assert "{:.0f}, {:.0f} and {:.0f} MiB of memory".format(*memory) in page


def test_the_table_of_models_is_that_of_the_measurement() -> None:
    folder = ROOT / "results" / "benchmarks"
    text = (folder / "README.md").read_text()
    rows = json.loads((folder / "models.json").read_text())["rows"]
    assert len(rows) == 18
    for row in rows:
        spread = f"({row['ratio_min']:.0f} to {row['ratio_max']:.0f})"
        assert f"| {row['round_s']:.3f} s | {row['ratio']:.0f} {spread} |" in text, row["model"]
        assert row["holds"] == (row["ratio"] >= row["wanted"])
    times = {row["model"]: row["round_s"] for row in rows if row["precision"] == "tf32"}
    for depth in (20, 18):
        ratio = times[f"resnet{depth}-batch"] / times[f"resnet{depth}-group"]
        assert f"{ratio:.2f} (ResNet-{depth})" in text


def test_what_is_said_of_adapters_on_a_gpu_is_what_was_measured() -> None:
    folder = ROOT / "results" / "pretrained"
    text = " ".join((folder / "README.md").read_text().split())
    page = " ".join((ROOT / "docs" / "pretrained.md").read_text().split())
    rows = json.loads((folder / "h200.json").read_text())["rows"]
    for row in rows:
        setting, ratio = row["setting"], row["loop / vectorised"]
        said = setting.get("recomputed"), setting.get("full")
        kind = {(True, None): "adapters, blocks twice", (None, True): "all weights"}
        seconds, gib = row["seconds of a round"]["vectorised"], row["peak GiB"]["vectorised"]
        loop = "not measured" if ratio is None else f"{ratio:.0f} times as long"
        what = f"{setting['precision']} | {kind.get(said, 'adapters')} | {seconds:.2f} s"
        assert f"| {setting['clients']:,} | {what} | {gib:.1f} GiB | {loop} |" in text
        assert ratio is None or (ratio >= 20 and gib < 12)
    few, thousand = rows[0], rows[2]
    seconds, gib = few["seconds of a round"]["vectorised"], few["peak GiB"]["vectorised"]
    told = f"{seconds:.2f} s and {gib:.1f} GiB, and the loop {few['loop / vectorised']:.0f} times"
    assert told in page
    half = rows[1]["seconds of a round"]["vectorised"], rows[1]["peak GiB"]["vectorised"]
    assert "with `bfloat16` {:.2f} s and {:.1f} GiB".format(*half) in page
    more = thousand["seconds of a round"]["vectorised"], thousand["peak GiB"]["vectorised"]
    assert "it took {:.1f} s and {:.0f} GiB".format(*more) in page
    assert f"their weights alone {few['GiB of a model per client']:.1f} GiB" in text
    copies = next(row for row in rows if row["setting"].get("full"))
    seconds, gib = copies["seconds of a round"]["vectorised"], copies["peak GiB"]["vectorised"]
    assert f"took {seconds:.2f} s and {gib:.0f} GiB" in page
    assert f"take {gib / few['peak GiB']['vectorised']:.1f} times the memory" in text
    for once, twice in ((few, rows[4]), (thousand, rows[5])):
        assert twice["setting"].get("recomputed")
        less, longer = (
            100 * abs(twice[what]["vectorised"] / once[what]["vectorised"] - 1)
            for what in ("peak GiB", "seconds of a round")
        )
        if once is few:
            assert f"{less:.0f} % for {longer:.0f} %" in text
        else:
            for where in (text, page):
                assert f"{less:.0f} % of the memory, for {longer:.0f} % more time" in where


@pytest.mark.parametrize("name", ["example", "gpu"])
def test_what_is_said_of_the_example_is_on_record(name: str) -> None:
    folder = ROOT / "results" / "pretrained"
    if not (folder / f"{name}.json").exists():
        pytest.skip(f"{name}.json is not recorded")
    done = subprocess.run(
        [sys.executable, str(folder / "table.py"), name], capture_output=True, text=True, check=True
    )
    assert done.stdout in (folder / "README.md").read_text()


def test_the_round_beside_its_older_version_is_that_of_the_measurement() -> None:
    folder = ROOT / "results" / "benchmarks"
    text = (folder / "README.md").read_text()
    for found in json.loads((folder / "rounds.json").read_text()).values():
        assert f"{found['new / old']:.3f} times" in text
        assert f"({found['new']:.3f} s" in text
        assert all(len(times) == 8 for times in found["all"].values())


@pytest.mark.slow
def test_the_table_of_tasks_is_that_of_its_records() -> None:
    folder = ROOT / "results" / "tasks"
    done = subprocess.run(
        [sys.executable, str(folder / "table.py")], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip(), done.stderr
    for line in done.stdout.splitlines():
        assert line in (folder / "README.md").read_text()


@pytest.mark.parametrize("study", ["cifar10", "cifar10-dynamic", "emnist"])
def test_the_tables_of_auto_are_those_of_its_studies(study: str) -> None:
    text = " ".join((ROOT / "docs" / "auto-study.md").read_text().split())
    found = json.loads((ROOT / "results" / "auto" / f"{study}.json").read_text())
    for mark, targets in found["targets"].items():
        cells = [f"round {mark} ({100 * fmean(targets):.1f} %)"]
        for cost in found["auto"].values():
            times = cost["times"][mark]
            for rival in ("fedrep", "srpfl"):
                reached = times["auto"] is not None and times[rival] is not None
                ratio = times["auto"] / times[rival] if reached else 0.0
                shown = f"{ratio:.{2 if ratio >= 0.01 else 3}f}"
                cells.append(shown if reached else "not reached")
        assert f"| {' | '.join(cells)} |" in text


@pytest.mark.parametrize("study", ["digits", "digits-slow-classes"])
def test_the_tables_of_digits_are_those_of_the_study(study: str) -> None:
    text = (ROOT / "docs" / "auto-study.md").read_text()
    found = json.loads((ROOT / "results" / "auto" / f"{study}.json").read_text())
    fedrep, costs = found["fedrep"], found["auto"]
    for mark in found["targets"]:
        times = [cost["times"][mark] for cost in costs.values()]
        better = [min(each[name] or math.inf for name in ("fedrep", "srpfl")) for each in times]
        ratios = [f"{each['auto'] / other:.2f}" for each, other in zip(times, better, strict=True)]
        assert f"| FedRep's round {mark} | {' | '.join(ratios)} |" in text
    final = [f"{100 * (cost['final'] - fedrep['final']):+.1f}" for cost in costs.values()]
    assert f"points over FedRep's | {' | '.join(final)} |" in text
    for each in (fedrep, found["srpfl"], *costs.values()):
        assert f"| {' | '.join(f'{100 * tenth:.1f}' for tenth in each['deciles'])} |" in text


def test_what_is_said_of_privacy_is_what_the_study_gives() -> None:
    text = (ROOT / "docs" / "privacy.md").read_text()
    found = json.loads((ROOT / "results" / "privacy" / "privacy.json").read_text())
    rows = [*found["rows"], *found["starts"]]
    assert f"`CLIP` {found['clip']:g}, δ = 1e-5, three seeds" in " ".join(text.split())
    assert len({row["seed"] for row in rows}) == 3
    for policy in ("fedrep", "srpfl", "auto", "srpfl, n0 = 188"):
        by_epsilon: dict[str, list[float]] = {}
        for row in rows:
            if row["policy"] == policy:
                by_epsilon.setdefault(row["wanted"], []).append(row["accuracy"])
        cells = " | ".join(f"{100 * fmean(each):.1f} %" for each in by_epsilon.values())
        assert f"| {policy} | {cells} |" in text
    costs = json.loads((ROOT / "results" / "privacy" / "secure.json").read_text())
    for row in costs["rows"]:
        share, total = row["seconds"] / costs["local"], sum(row["bytes"].values())
        assert f"| {row['members']} | {row['seconds']:.3f} | {share:.1f} | {total:,} |" in text
    assert f"a local update of {costs['local']:.3f} s" in text
    for row in costs["clocks"]:
        how = "masked" if row["masks"] else "plain"
        times = " | ".join(f"{time:.1f}" for time in row["time"].values())
        assert f"| {row['policy']} | {how} | {row['rounds']} | {times} |" in text

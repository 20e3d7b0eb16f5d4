"""Whatever is damaged: a clear sentence or the right answer, nothing else."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import srpfl
import tiny
from runs.damage import RECORDS, Damage, as_format_3, copy_of, damages, outside, play, read
from srpfl.errors import SrpflError
from srpfl.report.content import content
from srpfl.runs.comparison import compare
from srpfl.runs.doctor import examine, mend
from srpfl.runs.export import TABLES
from srpfl.runs.results import Results

few = settings(
    max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None
)
fewer = settings(few, max_examples=40)
many = settings(few, max_examples=200)


@pytest.fixture(scope="module")
def whole(in_memory: Path) -> tuple[Path, srpfl.Run]:
    folder = in_memory / "whole"
    return folder, play(folder)


@pytest.fixture(scope="module")
def old(in_memory: Path, whole: tuple[Path, srpfl.Run]) -> Path:
    """The same run as a version without checksums wrote it."""
    folder = as_format_3(copy_of(whole[0], in_memory / "old"))
    for name in ("rounds.jsonl", "evaluations.jsonl"):
        lines = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        plain = [{key: v for key, v in line.items() if key != "sum"} for line in lines]
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in plain)
        (folder / name).write_text(text)
    config = json.loads((folder / "config.json").read_text())
    del config["sum"], config["sums"]
    (folder / "config.json").write_text(json.dumps({**config, "format": 2}, indent=2) + "\n")
    for place in (folder / "checkpoints").glob("*/state.json"):
        state = json.loads(place.read_text())
        del state["sum"], state["held"]
        state["personal"] = {str(c): f for f, mine in state["personal"].items() for c in mine}
        place.write_text(json.dumps(state))
    return folder


def test_a_folder_without_checksums_is_read_and_gone_on_with(
    old: Path, whole: tuple[Path, srpfl.Run], tmp_path: Path, capsys
) -> None:
    folder = copy_of(old, tmp_path / "run")
    run, said = read(folder)
    assert not said
    assert run.rounds == whole[1].rounds
    assert run.evaluations == whole[1].evaluations
    assert examine(folder).whole
    before = {name: (folder / name).read_bytes() for name in RECORDS}
    again = play(folder, resume=True)
    assert not capsys.readouterr().err
    assert {name: (folder / name).read_bytes() for name in RECORDS} == before
    assert tiny.same(again.state.shared, whole[1].state.shared)
    newest = folder / "checkpoints" / "000005"
    (newest / "state.json").unlink()
    play(folder, resume=True)  # writes a checkpoint as this folder has them
    assert {name: (folder / name).read_bytes() for name in RECORDS} == before
    assert examine(folder).whole


def test_a_folder_with_a_tensor_for_each_client_is_gone_on_with(
    whole: tuple[Path, srpfl.Run], tmp_path: Path, capsys
) -> None:
    folder = as_format_3(copy_of(whole[0], tmp_path / "run"))
    assert examine(folder).whole
    (folder / "checkpoints" / "000005" / "state.json").unlink()
    run = play(folder, resume=True)
    assert "continuing from there" in capsys.readouterr().err
    for client in range(6):
        assert tiny.same(run.parts.of(client), whole[1].parts.of(client))
    assert examine(folder).whole
    again = play(folder, resume=True)
    assert not capsys.readouterr().err
    for client in range(6):
        assert tiny.same(again.parts.of(client), whole[1].parts.of(client))


def shown(run: Results) -> tuple[Any, ...]:
    """All that a report, a comparison and an export say."""
    page = content([run])
    tables = {name: list(table(run, run.communication)) for name, table in TABLES.items()}
    rows = compare([run]) if run.scores else None
    return json.dumps(page), rows, tables


def check_readers(damage: Damage, whole: tuple[Path, srpfl.Run], place: Path) -> str:
    """What became of a damaged run before its readers' eyes."""
    folder, truth = copy_of(whole[0], place), whole[1]
    damage.to(folder)
    health = examine(folder)
    try:
        run, said = read(folder)
    except SrpflError as error:
        assert_sentence(str(error))
        assert not health.whole
        return "refused"
    for sentence in said:
        assert_sentence(sentence)
    # What is shown is true as far as it goes.
    assert json.dumps(run.config) == json.dumps(dict(truth.config))
    assert run.rounds == truth.rounds[: len(run.rounds)]
    assert run.evaluations == truth.evaluations[: len(run.evaluations)]
    assert run.counts in (None, truth.counts)
    found = shown(run)
    last = [e for e in truth.evaluations if e.round < len(truth.rounds)]
    if not said:  # it is whole, or as if it had been stopped before the last evaluation
        assert run.rounds == truth.rounds
        assert len(run.evaluations) >= len(last)
    if not said and run.evaluations == truth.evaluations and run.counts:
        assert found == shown(
            Results(truth.config, truth.rounds, truth.evaluations, None, None, truth.counts)
        )
    assert health.whole or health.findings
    if said:
        assert not health.whole
    if any(finding.remedy for finding in health.findings):
        done = mend(folder)
        assert all(map(bool, done))
        again, said = read(folder)
        assert not said
        assert again.rounds == truth.rounds[: len(again.rounds)]
        assert again.evaluations == truth.evaluations[: len(again.evaluations)]
        assert examine(folder).whole
        return "mended"
    return "right" if health.whole else "not mended"


def check_resume(damage: Damage, whole: tuple[Path, srpfl.Run], place: Path) -> str:
    """A damaged run that goes on ends as the whole one, or does not go on."""
    folder, truth = copy_of(whole[0], place), whole[1]
    damage.to(folder)
    before = outside(folder).read_bytes() if outside(folder).exists() else b""
    try:
        run = play(folder, resume=True)
    except SrpflError as error:
        assert_sentence(str(error))
        return "refused"
    finally:
        if before:
            assert outside(folder).read_bytes() == before
    for name in RECORDS:  # white space around a config changes nothing
        found, expected = ((place / name).read_bytes() for place in (folder, whole[0]))
        assert found.strip() == expected.strip()
    assert run.rounds == truth.rounds
    assert tiny.same(run.state.shared, truth.state.shared)
    for client in range(6):
        assert tiny.same(run.parts.of(client), truth.parts.of(client))
    return "right"


def check_old(damage: Damage, old: Path, place: Path) -> None:
    """Without checksums a changed digit cannot be noticed; whatever happens, it is a sentence."""
    folder = copy_of(old, place)
    damage.to(folder)
    try:
        shown(read(folder)[0])
    except SrpflError as error:
        assert_sentence(str(error))
    examine(folder)


def assert_sentence(text: str) -> None:
    assert "\n" not in text.strip()
    assert "Traceback" not in text
    assert len(text) > 20


@pytest.mark.slow
@given(damage=damages)
@few
def test_readers_show_what_is_true_or_say_what_is_damaged(damage, whole, in_memory) -> None:
    check_readers(damage, whole, in_memory / "readers")


@pytest.mark.slow
@given(damage=damages)
@fewer
def test_a_damaged_run_goes_on_exactly_or_not_at_all(damage, whole, in_memory) -> None:
    check_resume(damage, whole, in_memory / "resumed")


@given(damage=damages)
@few
def test_a_damaged_folder_of_an_older_version_is_a_sentence(damage, old, in_memory) -> None:
    check_old(damage, old, in_memory / "older")


@pytest.mark.faults
@given(damage=damages)
@many
def test_readers_many_times(damage, whole, in_memory, trial) -> None:
    check_readers(damage, whole, in_memory / "readers")


@pytest.mark.faults
@given(first=damages, second=damages)
@settings(many, max_examples=50)
def test_resuming_many_times_after_two_damages(first, second, whole, in_memory, trial) -> None:
    class Both(Damage):
        def to(self, folder: Path) -> None:
            first.to(folder)
            if second.path(folder).is_file():
                second.to(folder)

    both = Both(first.file, first.kind, first.place, first.value)
    check_resume(both, whole, in_memory / "resumed")


@pytest.mark.faults
@given(damage=damages)
@many
def test_older_folders_many_times(damage, old, in_memory, trial) -> None:
    check_old(damage, old, in_memory / "older")


@pytest.mark.parametrize("name", ["rounds.jsonl", "evaluations.jsonl", "checkpoints"])
def test_a_file_of_another_run_is_noticed_though_it_is_whole(
    name: str, whole: tuple[Path, srpfl.Run], tmp_path: Path
) -> None:
    folder, other = copy_of(whole[0], tmp_path / "run"), tmp_path / "other"
    play(other, seed=7)
    if name == "checkpoints":
        shutil.rmtree(folder / name)
        shutil.rmtree(folder / "personal")
        shutil.copytree(other / "personal", folder / "personal")
        shutil.copytree(other / name, folder / name)
    else:
        shutil.copy(other / name, folder / name)
    assert not examine(folder).whole
    run = play(folder, resume=True)
    assert tiny.same(run.state.shared, whole[1].state.shared)
    for file in RECORDS:
        assert (folder / file).read_bytes() == (whole[0] / file).read_bytes()


@pytest.mark.parametrize("end", [b'"}\r\n', b'" }\n', b'"} \n'])
def test_a_run_whose_lines_end_otherwise_is_made_longer(end: bytes, whole, tmp_path: Path) -> None:
    """As editors leave files. The sums of new lines are over that of the last one."""
    folder, other = (copy_of(whole[0], tmp_path / name) for name in ("run", "other"))
    for name in ("rounds.jsonl", "evaluations.jsonl"):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data.replace(b'"}\n', end))
    for place in (folder, other):
        play(place, rounds=7, resume=True)
    assert examine(folder).whole
    for name in RECORDS:
        assert (folder / name).read_bytes() == (other / name).read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="writes what is not there")
def test_weights_with_a_terabyte_of_nothing_are_not_read_to_their_end(
    whole: tuple[Path, srpfl.Run], tmp_path: Path
) -> None:
    folder = copy_of(whole[0], tmp_path / "run")
    for file in folder.rglob("*5*/shared.safetensors"):
        os.truncate(file, 1 << 40)  # it takes no room on the disk
    began = time.monotonic()
    assert "not as long as it was written" in str(examine(folder).findings)
    run = play(folder, resume=True)
    assert time.monotonic() - began < 60  # reading it takes ten minutes or more
    assert tiny.same(run.state.shared, whole[1].state.shared)

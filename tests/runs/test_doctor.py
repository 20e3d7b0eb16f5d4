"""``srpfl doctor``: whether a run is whole, what is damaged, and mending it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import typer

import tiny
from runs.damage import RECORDS, play
from srpfl.cli.doctor import doctor
from srpfl.errors import RunFolderError
from srpfl.runs.doctor import examine, mend
from srpfl.runs.folder import RunFolder
from srpfl.runs.results import Results


def asked(
    folder: Path, capsys: pytest.CaptureFixture[str], *, mend: bool = False
) -> tuple[int, dict[str, Any]]:
    """The exit code, and what is said of a run."""
    code = 0
    try:
        doctor([folder], mend=mend, as_json=True)
    except typer.Exit as end:
        code = end.exit_code
    [told] = json.loads(capsys.readouterr().out)
    return code, told


def cut(path: Path, lines: int) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]))


def test_a_whole_run_is_said_to_be(tmp_path: Path, capsys) -> None:
    play(tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    code, told = asked(tmp_path / "run", capsys, mend=True)
    assert code == 0
    assert told["whole"]
    assert (told["rounds"], told["planned"], told["state"]) == (5, 5, 5)
    assert not told["damage"] + told["done"]
    for path, data in before.items():
        assert path.read_bytes() == data
    doctor([tmp_path / "run"])
    assert "whole, 5 of 5 rounds; a state after round 5" in capsys.readouterr().out


def test_damage_is_said_and_nothing_is_changed_unless_asked(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "run"
    play(folder)
    records = folder / "rounds.jsonl"
    records.write_bytes(records.read_bytes().replace(b'"round":4', b'"round":9'))
    damaged = records.read_bytes()
    code, told = asked(folder, capsys)
    assert code == 1
    assert not told["whole"]
    assert "rounds.jsonl, line 4, is damaged (its checksum does not fit)" in told["damage"][0]
    assert records.read_bytes() == damaged


def test_what_is_mended_can_be_read_and_goes_on_and_what_was_there_is_kept(
    tmp_path: Path, capsys
) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "run"
    run = play(whole)
    play(folder)
    records = folder / "rounds.jsonl"
    records.write_bytes(records.read_bytes().replace(b'"round":4', b'"round":9'))
    (folder / "partition.json").write_text("[[1]]")
    damaged = records.read_bytes()
    code, told = asked(folder, capsys, mend=True)
    assert code == 0
    assert told["whole"]
    assert told["rounds"] == 3
    kept = {path.name: path for path in (folder / "damaged").iterdir()}
    assert kept["rounds.jsonl"].read_bytes() == damaged
    assert kept["partition.json"].read_text() == "[[1]]"
    assert Results.load(folder).rounds == run.rounds[:3]
    assert not capsys.readouterr().err
    again = play(folder, resume=True)
    assert tiny.same(again.state.shared, run.state.shared)
    for name in RECORDS:
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    assert examine(folder).whole


def test_mending_twice_keeps_both(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    play(folder)
    records = folder / "rounds.jsonl"
    for number in (b"4", b"2"):
        records.write_bytes(records.read_bytes().replace(b'"round":' + number, b'"round":9'))
        assert mend(folder)
    assert examine(folder).whole
    assert len([*(folder / "damaged").glob("rounds.jsonl*")]) == 2


def test_a_config_that_is_gone_or_changed_cannot_be_mended(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "run"
    play(folder)
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"seed": 0', '"seed": 1'))
    code, told = asked(folder, capsys, mend=True)
    assert code == 1
    assert "put the original back" in told["damage"][0]
    assert not told["done"]
    with pytest.raises(RunFolderError, match="holds no run"):
        doctor([tmp_path / "nowhere"])


def test_a_run_that_is_being_played_is_not_mended(tmp_path: Path) -> None:
    play(tmp_path / "run")
    cut(tmp_path / "run" / "rounds.jsonl", 2)
    player = RunFolder(tmp_path / "run")
    player.claim()
    try:
        assert examine(tmp_path / "run").playing
        with pytest.raises(RunFolderError, match="another process is playing"):
            mend(tmp_path / "run")
    finally:
        player.release()


def test_of_an_older_checkpoint_it_is_said_that_the_run_does_not_need_it(tmp_path: Path) -> None:
    """A loss of power may bring back one that was about to go, without its clients' parts."""
    play(tmp_path / "run")
    older, newest = sorted((tmp_path / "run" / "checkpoints").iterdir())
    (older / "shared.safetensors").unlink()
    [finding] = examine(tmp_path / "run").findings
    assert finding.wrong.endswith("the run does not need it, a newer one is whole")
    (newest / "shared.safetensors").unlink()
    assert not any(
        "newer one is whole" in each.wrong for each in examine(tmp_path / "run").findings
    )


def test_what_keeps_a_run_from_going_on_is_said(tmp_path: Path) -> None:
    """Also in files that it does not need: seconds that were real, and a note of a divergence."""
    for name, wrong in (
        ("timing.jsonl", "would take"),
        ("diverged.txt", "is a folder, not a file"),
    ):
        folder = tmp_path / name / "run"
        play(folder)
        if name == "timing.jsonl":
            os.truncate(folder / name, 1 << 40)  # it takes no room on the disk
        else:
            (folder / name).mkdir()
        assert not examine(folder).whole
        with pytest.raises(RunFolderError, match=wrong):
            play(folder, resume=True)

"""A run folder may come from anybody: links in it are never followed, and nothing is removed that
we did not write."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import tiny
from srpfl.cli.report import report
from srpfl.errors import RunFolderError
from srpfl.runs.doctor import examine
from srpfl.runs.results import Results


def victim(place: Path, *, folder: bool) -> Path:
    if not folder:
        place.write_text("precious\n")
        return place
    (place / "000001").mkdir(parents=True)
    (place / "000001" / "state.json").write_text("precious")
    (place / "000001.safetensors").write_text("precious")
    return place


def content(place: Path) -> dict[str, str]:
    if place.is_file():
        return {"": place.read_text()}
    return {str(f.relative_to(place)): f.read_text() for f in place.rglob("*") if f.is_file()}


FILES = ["config.json", "partition.json", "rounds.jsonl", "evaluations.jsonl", "timing.jsonl"]
INNER = ["checkpoints/000004/state.json", "checkpoints/000004/shared.safetensors"]
FOLDERS = ["checkpoints", "personal", "checkpoints/000004"]


@pytest.mark.parametrize("name", [*FILES, ".lock", *INNER, *FOLDERS])
def test_a_link_is_refused_and_what_it_points_to_stays(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    tiny.simulate(out=folder)
    other = victim(tmp_path / "other", folder=name in FOLDERS)
    before = content(other)
    inside = folder / name
    inside.rename(folder.with_name("original"))
    inside.symlink_to(other)
    with pytest.raises(RunFolderError, match="a link, not a f"):
        tiny.simulate(out=folder, resume=True)
    assert content(other) == before
    assert not examine(folder).whole
    if name in (*FILES[:1], *FILES[2:4]):
        with pytest.raises(RunFolderError, match="is a link"):
            Results.load(folder)


def test_a_run_does_not_begin_by_a_link(tmp_path: Path) -> None:
    other = victim(tmp_path / "other", folder=False)
    (tmp_path / "run").mkdir()
    for name in (".lock", "partition.json"):
        (tmp_path / "run" / name).symlink_to(other)
        with pytest.raises(RunFolderError, match="is a link"):
            tiny.simulate(out=tmp_path / "run")
        (tmp_path / "run" / name).unlink()
    assert content(other) == {"": "precious\n"}


def test_a_report_is_not_written_by_a_link(tmp_path: Path) -> None:
    other = victim(tmp_path / "other", folder=False)
    tiny.simulate(out=tmp_path / "run")
    (tmp_path / "run" / "report.html").symlink_to(other)
    with pytest.raises(RunFolderError, match="is a link"):
        report([tmp_path / "run"])
    assert content(other) == {"": "precious\n"}


def test_a_pipe_does_not_hang_a_reader(tmp_path: Path) -> None:
    tiny.simulate(out=tmp_path / "run")
    (tmp_path / "run" / "rounds.jsonl").unlink()
    os.mkfifo(tmp_path / "run" / "rounds.jsonl")
    with pytest.raises(RunFolderError, match="is something else, not a file"):
        Results.load(tmp_path / "run")


def test_a_copy_by_hard_links_stays_as_it_is(tmp_path: Path) -> None:
    """As backups are made: `cp -al` and `rsync --link-dest` copy names, not content."""
    folder, backup = tmp_path / "run", tmp_path / "backup"
    tiny.simulate(out=folder, rounds=2)
    shutil.copytree(folder, backup, copy_function=os.link)
    before = {f: f.read_bytes() for f in backup.rglob("*") if f.is_file()}
    longer = tiny.simulate(out=folder, resume=True)
    assert {f: f.read_bytes() for f in backup.rglob("*") if f.is_file()} == before
    assert tiny.same(longer.state.shared, tiny.simulate().state.shared)


def test_files_of_others_in_a_run_folder_stay(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    tiny.simulate(out=folder, rounds=2)
    foreign = [
        folder / "notes.txt",
        folder / ".notes.txt.123",
        folder / "checkpoints" / "mine.txt",
        folder / "checkpoints" / "000001" / "mine.txt",
        folder / "checkpoints" / "123" / "state.json",
        folder / "checkpoints" / "000009" / "mine.txt",
        folder / "personal" / "other.safetensors",
        folder / "personal" / ".cache.7",
    ]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("precious")
    config = folder / "rounds.jsonl"
    config.write_bytes(b"".join(config.read_bytes().splitlines(keepends=True)[:1]))
    tiny.simulate(out=folder, rounds=2, resume=True)
    assert [path.read_text() for path in foreign] == ["precious"] * len(foreign)


def test_a_state_cannot_name_files_elsewhere(tmp_path: Path, capsys) -> None:
    import json

    from srpfl.runs.seal import seal

    folder = tmp_path / "run"
    whole = tiny.simulate(out=folder)
    for place in (folder / "checkpoints").glob("*/state.json"):
        state = json.loads(place.read_text())
        del state["sum"]
        state["hashes"] = {f"../../{name}": told for name, told in state["hashes"].items()}
        place.write_text(seal(json.dumps(state)))
    run = tiny.simulate(out=folder, resume=True)
    assert "names files that are not its own" in capsys.readouterr().err
    assert tiny.same(run.state.shared, whole.state.shared)

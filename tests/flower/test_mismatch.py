"""Real nodes with another srpfl or another model than the server."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import srpfl
from flower.processes import LIMIT, Trial
from flower.test_processes import DIGITS, PATIENCE
from srpfl.flower.local import LocalFlower, until
from srpfl.flower.wire import PROTOCOL

pytestmark = pytest.mark.slow


def other_srpfl(folder: Path, version: str, protocol: int) -> Path:
    """A folder with srpfl as another version of it would be installed."""
    ours = Path(srpfl.__file__).parent
    shutil.copytree(ours, folder / "srpfl", ignore=shutil.ignore_patterns("__pycache__"))
    wire = folder / "srpfl" / "flower" / "wire.py"
    text = wire.read_text()
    assert f"PROTOCOL = {PROTOCOL} " in text
    wire.write_text(text.replace(f"PROTOCOL = {PROTOCOL} ", f"PROTOCOL = {protocol} "))
    about = folder / f"srpfl-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: srpfl\nVersion: {version}\n")
    return folder


def said_by(trial: Trial, client: int) -> list[str]:
    """The refusals in a node's own log."""
    log = (trial.flower.folder / f"node-{client}.log").read_text(errors="replace")
    return [line for line in log.splitlines() if "the server refuses this node" in line]


def test_a_mismatch_is_said_on_both_sides_and_another_patch_takes_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**DIGITS, "clients": 4, "method": "fedrep", "rounds": 2, "evaluate_every": 0}
    installed = {
        1: other_srpfl(tmp_path / "newer", "99.0.1", PROTOCOL),
        2: other_srpfl(tmp_path / "older", "0.0.9", PROTOCOL - 1),
    }
    with LocalFlower(tmp_path / "flower") as flower:
        trial = Trial(flower, tmp_path, options, {**PATIENCE, "clients": 60.0})
        for client in range(4):
            with monkeypatch.context() as there:
                if client in installed:
                    before = os.environ.get("PYTHONPATH", "")
                    there.setenv("PYTHONPATH", f"{installed[client]}{os.pathsep}{before}")
                trial.join(client, **({"model": "other"} if client == 3 else {}))
        run = trial.submit()
        until(lambda: bool(said_by(trial, 2) and said_by(trial, 3)), LIMIT, "the nodes to hear why")
        log = trial.wait_for_end(run)
        [of_version], [of_model] = said_by(trial, 2), said_by(trial, 3)
    assert flower.pids() == []

    assert "it speaks another protocol (srpfl 0.0.9 there" in of_version
    assert "install the server's version" in of_version
    assert "it has another model or algorithm than the server" in of_model
    refused = [event["why"] for event in trial.events("refused")]
    assert len(refused) == 2
    for why in refused:
        assert why in of_version + of_model  # the same sentence on both sides
        assert why in log
    assert "has srpfl 99.0.1" in trial.events("other version")[0]["why"]
    assert [sorted(record.participants) for record in trial.rounds()] == [[0, 1]] * 2
    trial.check_against_simulator()

"""srpfl privacy, and the study of what privacy costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command import srpfl
from srpfl.studies.private import TRIAL, draw, search, study

pytest.importorskip("dp_accounting", reason="srpfl[privacy] is not installed")
TINY = {"data": "digits", "partition": "shards", "clients": 6, "model": "auto", "rounds": 2}


def test_noise_for_a_promise_and_what_a_run_spent(tmp_path: Path) -> None:
    told = srpfl("privacy", "--epsilon", "8", "--rounds", "2", cwd=tmp_path).stdout.splitlines()
    average = told[-1].split()[3]  # of the command that it gives
    play = ["--method", "fedavg", "--clients", "6", "--rounds", "2", "--evaluate-every", "0"]
    srpfl("run", *play, "--set", average, "--out", "run", cwd=tmp_path)
    assert "ε = 8 at" in srpfl("privacy", "run", cwd=tmp_path).stdout


def test_a_run_without_noise_is_told_so_in_a_sentence(tmp_path: Path) -> None:
    play = ["--method", "fedavg", "--clients", "6", "--rounds", "1", "--evaluate-every", "0"]
    srpfl("run", *play, "--out", "run", cwd=tmp_path)
    assert "promises nothing" in srpfl("privacy", "run", cwd=tmp_path, fails=True).stderr


@pytest.mark.slow
def test_the_study_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srpfl.studies.private.NETWORK", {})
    small = {**TINY, "evaluate_at": "2"}
    rows = study(tmp_path / "runs", [0], [8.0, float("inf")], clip=0.3, **small)
    assert [row["policy"] for row in rows] == ["fedrep", "srpfl", "auto"] * 2
    assert json.dumps(rows)
    found = search(tmp_path / "runs", clips=(0.3,), **small)  # on a seed that is not reported
    assert 0 <= found[0.3] <= 1
    assert (tmp_path / "runs" / f"auto-4-clip0.3-seed{TRIAL}").is_dir()
    assert rows[0]["epsilon"] == pytest.approx(8.0, rel=1e-3)
    draw(rows, tmp_path / "privacy.png")
    assert (tmp_path / "privacy.png").stat().st_size > 1000

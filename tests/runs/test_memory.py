"""A folder from a stranger takes no more memory than is said, whatever is done with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tiny
from runs import hostile
from sentence import LONGEST

GIB = 1 << 30
LIMIT = 0.004  # of SRPFL_MAX_GIB
TIMES = 64  # that docs/reliability.md promises
RUN = ["--data", "digits", "--clients", "5", "--per-client", "12", "--method", "fedrep"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has no getrusage")
def test_whatever_is_done_with_it(quick_path: Path) -> None:
    whole, bad, place = (quick_path / name for name in ("whole", "bad", "place"))
    often = ["--rounds", str(hostile.ROUNDS), "--evaluate-every", "2", "--quiet"]
    assert hostile.done(["run", *RUN, *often, "--out", str(whole)])[0] == 0
    runs = list(hostile.made(whole, bad, int(LIMIT * GIB)))
    place.mkdir()
    done = subprocess.run(
        [sys.executable, hostile.__file__, str(place), str(whole), *map(str, runs)],
        env={**os.environ, "SRPFL_MAX_GIB": str(LIMIT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(steps) == len(runs) * len(list(hostile.commands(whole, place)))
    for step in steps:
        assert step["grown"] < TIMES * LIMIT * GIB, step
        assert "Traceback" not in step["said"]
        if step["code"] == 2:
            assert len(step["said"].splitlines()[-1]) <= LONGEST
    assert {step["code"] for step in steps if step["run"] == "in_arrivals"} == {0}
    assert {*quick_path.iterdir()} == {whole, bad, place}  # nothing beside them
    assert {*bad.iterdir()} == {*runs}


def test_records_longer_than_one_text_may_be_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.simulate(rounds=40, evaluate_every=40, out=tmp_path / "run")
    size = (tmp_path / "run" / "rounds.jsonl").stat().st_size
    monkeypatch.setenv("SRPFL_MAX_GIB", str(1.5 * size / GIB))  # of which a text may have a quarter
    run = tiny.simulate(rounds=41, evaluate_every=40, out=tmp_path / "run", resume=True)
    assert len(run.rounds) == 41

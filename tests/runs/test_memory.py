"""A folder from a stranger takes no more memory than is said, whatever is done with it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import srpfl
import tiny
from runs import hostile
from sentence import LONGEST
from srpfl.errors import RunFolderError
from srpfl.runs.records import EvaluationRecord, RoundRecord, to_line
from srpfl.runs.room import TEXTS, largest, weight
from srpfl.runs.seal import seal

GIB = 1 << 30
LIMIT = 0.05  # of SRPFL_MAX_GIB
TIMES = 2  # that docs/reliability.md promises
OWN = 64 << 20  # bytes that commands take whatever they read: compilers, pictures, tables
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
        assert step["grown"] < TIMES * LIMIT * GIB + OWN, step
        assert "Traceback" not in step["said"]
        if step["code"] == 2:
            assert len(step["said"].splitlines()[-1]) <= LONGEST
    # What fits is read; the doctor says that its rounds are of another run than its state.
    read = [step for step in steps if step["does"] in ("report", "export")]
    assert {step["code"] for step in read if step["run"] == "in_arrivals"} == {0}
    assert {*quick_path.iterdir()} == {whole, bad, place}  # nothing beside them
    assert {*bad.iterdir()} == {*runs}


def test_records_longer_than_one_text_may_be_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.simulate(rounds=24, evaluate_every=24, out=tmp_path / "run")
    records = weight((tmp_path / "run" / "rounds.jsonl").read_bytes())
    monkeypatch.setenv("SRPFL_MAX_GIB", str(1.1 * records / GIB))  # a text may have a quarter of it
    run = tiny.simulate(rounds=25, evaluate_every=24, out=tmp_path / "run", resume=True)
    assert len(run.rounds) == 25


def test_what_is_refused_names_the_limit_that_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.simulate(rounds=24, evaluate_every=24, out=tmp_path / "run")
    records = tmp_path / "run" / "rounds.jsonl"
    monkeypatch.setattr("srpfl.runs.room.RECORDS", 0.9 * weight(records.read_bytes()) / GIB)
    with pytest.raises(RunFolderError, match=r"would take .* GiB in memory") as refused:
        srpfl.Run.load(tmp_path / "run")
    assert str(records) in str(refused.value)
    [enough] = re.findall(r"set SRPFL_MAX_GIB=(\S+) to read it", str(refused.value))
    monkeypatch.setenv("SRPFL_MAX_GIB", enough)
    assert len(srpfl.Run.load(tmp_path / "run").rounds) == 24


def test_large_runs_are_read_without_being_asked() -> None:
    """By default there is room for 10,000 clients in 1,000 rounds, and 100 in 100,000."""
    arrivals = [1 / 3 + place for place in range(100)]
    record = RoundRecord(1, 1, 100, 100, [54321] * 100, arrivals, [], [], 1 / 3, 1 / 7, 1e6 / 3)
    line = seal(to_line(record)).encode()
    assert 100_000 * weight(line) < largest()
    tested = EvaluationRecord(1, "personalised", 1e6 / 3, 1 / 3, [1 / 3] * 1000, [20.0] * 1000)
    assert 1000 * weight(to_line(tested).encode()) < largest() // TEXTS  # a million in one line


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@settings(max_examples=25, deadline=None, database=None)
@given(st.lists(VALUES, min_size=1, max_size=4), st.booleans())
@example([{}], True)
@example([[1]], True)
@example([{"a": 1}], True)
@example([257, 1e9], True)
@example(["\U0001f600aaaa"], False)
def test_nothing_takes_more_than_it_weighs(values: list[object], escaped: bool) -> None:
    """Often enough that lists have grown, and what a parser keeps for itself does not count."""
    text = json.dumps(values * 300, ensure_ascii=escaped, separators=(",", ":"))
    data = text.encode("utf-8", "surrogatepass")
    tracemalloc.start()
    read = json.loads(data)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(read) == 300 * len(values)
    assert taken < weight(data) + 1000

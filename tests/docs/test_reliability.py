"""The page on reliability says what the suite tries, and what limits there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from srpfl.data import limits
from srpfl.report import live
from srpfl.runs import room, seal

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"


@pytest.mark.slow
def test_the_counts_are_those_of_the_suite() -> None:
    counted = [sys.executable, str(ROOT / "tests" / "faults" / "counts.py")]
    done = subprocess.run(counted, capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") > 5
    assert done.stdout in PAGE.read_text()


def test_the_limits_are_those_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(limits.MAX_GIB, raising=False)
    text = " ".join(PAGE.read_text().split())
    assert (room.largest(), room.TEXTS) == (2 * limits.GIB, 4)
    assert "The records of a run may take 2 GiB, any other text a quarter of that" in text
    assert (limits.ALWAYS, limits.RATIO, limits.CLASSES) == (limits.GIB, 50, 100_000)
    assert "may take 1 GiB or 50 times its own size, whichever is more, and have 100,000" in text
    assert f"at most {seal.DEEPEST} levels deep" in text
    assert f"{live.CONNECTIONS} connections at a time" in text
    assert f"gives each {live.PATIENCE:g} seconds" in text

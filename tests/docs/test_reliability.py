"""The page on reliability says what the suite tries, and what limits there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from srpfl.report import live
from srpfl.runs import files, seal

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"


@pytest.mark.slow
def test_the_counts_are_those_of_the_suite() -> None:
    counted = [sys.executable, str(ROOT / "tests" / "faults" / "counts.py")]
    done = subprocess.run(counted, capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") > 5
    assert done.stdout in PAGE.read_text()


def test_the_limits_are_those_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(files.MAX_GIB, raising=False)
    text = " ".join(PAGE.read_text().split())
    assert files.largest() == files.GIB
    assert "A file of records may have 1 GiB, one line or one JSON text a quarter of that" in text
    assert f"at most {seal.DEEPEST} levels deep" in text
    assert f"{live.CONNECTIONS} connections at a time" in text
    assert f"gives each {live.PATIENCE:g} seconds" in text

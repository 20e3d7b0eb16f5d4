"""Others' searches drive our runs: the examples, in small."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "example", "more"),
    [("optuna", "tune_optuna.py", []), ("ray.tune", "tune_ray.py", ["--at-once", "1"])],
)
def test_a_search_finds_a_rate_and_stops_runs_that_fall_behind(
    module: str, example: str, more: list[str]
) -> None:
    found = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True)
    if found.returncode:
        pytest.skip(f"{module} is not installed")
    told = [sys.executable, str(EXAMPLES / example), "--trials", "4", "--rounds", "6", *more]
    done = subprocess.run(told, capture_output=True, text=True, timeout=240)
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-2000:]
    assert last.startswith("best accuracy 0."), last
    assert float(last.split()[2]) > 0.5
    assert int(last.split()[-3]) >= 1, "no run was stopped early"

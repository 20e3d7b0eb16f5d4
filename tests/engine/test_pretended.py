"""The way of a GPU on a machine without one, tried in a process of its own: PyTorch starts a thread
for each device with the first backward pass, and a process with such threads cannot be forked into
workers, which other tests do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).with_name("pretended.py")


@pytest.mark.slow
@pytest.mark.parametrize("which", ["not slow", "slow"])
def test_a_pretended_gpu(which: str) -> None:
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", which, str(TESTS)]
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, cwd=TESTS.parents[2], timeout=900
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr
    assert " passed" in done.stdout

"""With everyone asked, a round and its checkpoint cost so much per client, however many there are.

What is counted is the same on every machine: calls of functions, bytes and files.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "everyone.py"
FEW, MANY = 300, 3000


@pytest.fixture(scope="module")
def everyone() -> Any:
    """The benchmark that counts."""
    spec = importlib.util.spec_from_file_location("everyone", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["everyone"] = module  # where its dataclasses look for their names
    spec.loader.exec_module(module)
    return module


def calls(everyone: Any, clients: int, folder: Path | None, rounds: int) -> int:
    place = folder and folder / f"{clients}-{rounds}"
    count: int = everyone.calls(clients, place, rounds)
    return count


@pytest.mark.parametrize("kept", [False, True], ids=["loop", "with checkpoints"])
def test_a_round_calls_in_proportion_to_the_clients(
    everyone: Any, kept: bool, quick_path: Path
) -> None:
    folder = quick_path if kept else None
    everyone.play(10, folder and folder / "first", 2)  # imports what is needed
    few, many = (
        calls(everyone, clients, folder, 3) - calls(everyone, clients, folder, 1)
        for clients in (FEW, MANY)
    )
    assert many / MANY <= few / FEW  # what does not depend on clients is shared by more
    assert many / 2 / MANY < (90 if kept else 45)


def test_a_checkpoint_writes_in_proportion_to_the_clients(everyone: Any, quick_path: Path) -> None:
    written = {}
    for clients in (FEW, MANY):
        everyone.play(clients, quick_path / f"{clients}", 3)
        files = [path for path in (quick_path / f"{clients}").rglob("*") if path.is_file()]
        written[clients] = len(files), sum(path.stat().st_size for path in files)
    assert written[MANY][0] <= written[FEW][0]
    assert written[MANY][1] <= MANY / FEW * written[FEW][1]

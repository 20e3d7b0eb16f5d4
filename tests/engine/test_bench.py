"""The benchmark compares like with like."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from srpfl.bench import SETTINGS, compare
from srpfl.bench.plain import PlainEngine
from srpfl.errors import SrpflError


def test_the_plain_loop_does_the_same_work() -> None:
    small = replace(SETTINGS["lenet-augmented"], clients=2, samples=20)
    found = compare("small", small, repeats=2, engine="vectorised")
    assert len(found.ours) == len(found.plain) == len(found.ratios) == 2
    assert found.losses[0] == pytest.approx(found.losses[1], rel=0.1)


def test_the_command_lists_what_can_be_measured(tmp_path: Path) -> None:
    told = [sys.executable, "-m", "srpfl", "bench", "--list"]
    done = subprocess.run(told, cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert set(SETTINGS) <= {line.split()[0] for line in lines if line.strip()}


def test_unequal_work_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    train = PlainEngine.train
    monkeypatch.setattr(
        PlainEngine,
        "train",
        lambda self, jobs: [
            [replace(answer, loss=10.0) for answer in answers] for answers in train(self, jobs)
        ],
    )
    with pytest.raises(SrpflError, match="do not do the same work"):
        compare("light", replace(SETTINGS["light"], clients=3), repeats=1, engine="loop")


FOLDER = Path(__file__).parents[2] / "benchmarks"
TINY = {
    "models.py": "--models lenet-tutorial --precisions tf32 --clients 2 --few 1 --samples 4",
    "lora.py": "--clients 3 --few 1 --sentences 4 --length 6",
}


@pytest.mark.slow
@pytest.mark.parametrize(("script", "file"), [("models.py", "--out"), ("lora.py", "--json")])
def test_scripts_for_a_gpu_run_in_small_on_a_cpu(script: str, file: str, tmp_path: Path) -> None:
    words = [*TINY[script].split(), "--device", "cpu", "--repeats", "1", file, str(tmp_path / "x")]
    command = [sys.executable, str(FOLDER / script), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "x").read_text())
    [row] = found.get("rows", [found])
    assert (row.get("ratio") or row["loop / vectorised"]) > 0

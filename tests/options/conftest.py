"""A folder with a user's code, and the command in it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from srpfl.cli import main

MINE = '''\
"""A user's own choices."""
from dataclasses import dataclass

import numpy as np
from torch import nn

import srpfl
from srpfl.algorithms.base import PersonalHead
from srpfl.core.plan import Phase
from srpfl.core.randomness import stream
from srpfl.data import Pooled, Samples
from srpfl.participation import Call, Sampling
from srpfl.task import Task


def net(classes, width=8):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, classes))


def line():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))


def shaped(shape, bias: bool = True):
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 8), nn.Linear(8, 10, bias))


@dataclass(frozen=True, kw_only=True)
class Warm(PersonalHead):
    warm: int = 2
    epochs: int = 1
    batch_size: int = 7

    def phases(self, shared, personal):
        return Phase(personal, epochs=self.warm), Phase(shared | personal, epochs=self.epochs)


@dataclass(frozen=True, kw_only=True)
class OwnRule(Warm):
    rule: srpfl.SGD = srpfl.SGD(lr=0.5)


@dataclass(frozen=True, kw_only=True)
class Few(Sampling):
    k: int = 3

    def call(self, memory, round, population):
        return Call(ask=population, wait=self.k, draw=round)


class Slow:
    communication, fixed = 0.0, True

    def __init__(self, factor: float = 2.0):
        self.factor = factor

    def times(self, seed, round, clients, population, work):
        return self.factor * (1.0 + clients)


@dataclass(frozen=True, kw_only=True)
class Off(Task):
    metric = "error"
    higher_is_better = False
    power: int = 2

    def loss(self, outputs, y):
        return (outputs[:, 0] - y).abs() ** self.power

    def score(self, outputs, y):
        return (outputs[:, 0] - y).abs()


def numbers(clients: int, seed: int, spread: float = 0.1, task: str = "regression"):
    rng = stream(seed, "numbers")
    x = rng.normal(size=(8 * clients, 4)).astype(np.float32)
    y = (x.sum(1) + spread * rng.normal(size=len(x))).astype(np.float32)
    parts = np.split(np.arange(len(x)), clients)
    return Pooled("numbers", Samples(x, y), Samples(x, y), parts, parts, 0, task=task)


THREE = 3
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to stand in, with mine.py."""
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    path, before = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.fixture
def run(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Any]:
    """``srpfl run`` in that folder: its result, or what it says where it fails."""

    def command(*arguments: str, fails: bool = False, few: bool = True) -> Any:
        small = ["--clients", "6", "--rounds", "2", "--evaluate-every", "2"] if few else []
        monkeypatch.setattr("sys.argv", ["srpfl", "run", *small, *arguments, "--json"])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        if not fails:
            assert end.value.code == 0, said.err
            return json.loads(said.out)
        assert end.value.code == 2
        assert said.out == ""
        assert said.err.startswith("srpfl: ")
        assert said.err.count("\n") == 1
        return said.err.removeprefix("srpfl: ").strip()

    return command

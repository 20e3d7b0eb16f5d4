"""Two choices that differ never look the same in a run folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import srpfl
import tiny
from srpfl.errors import RunFolderError
from srpfl.runs.describe import describe


def made(width: int) -> Any:
    return lambda name: len(name) > width


class Longer(Random):
    """It holds methods of its own: of Python's, and of Random's in C."""

    def __init__(self, width: int) -> None:
        super().__init__(0)
        self.width, self.rule, self.draw = width, self.than, self.random
        self.rules = {"than": partial(self.than, ""), "longer": lambda name: self.than(name)}

    def than(self, name: str) -> bool:
        return len(name) > self.width


PAIRS: list[tuple[Any, Any]] = [
    ({"a": 1}, {"a": 2}),
    (Path("a"), Path("b")),
    (frozenset({"a"}), frozenset({"b"})),
    (lambda name: name == "a", lambda name: name == "b"),
    (made(1), made(2)),
    (partial(round, ndigits=1), partial(round, ndigits=2)),
    (Longer(1).than, Longer(2).than),
    (Longer(1), Longer(2)),
    (torch.zeros(2), torch.ones(2)),
    (np.zeros(2), np.zeros(3)),
    (np.float64(1.0), np.float64(2.0)),
    ([{"a": {1}}], [{"a": {2}}]),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_what_differs_looks_different(one: Any, other: Any) -> None:
    assert describe(one) == describe(one)
    assert describe(one) != describe(other)


def test_a_run_with_another_split_is_another_run(tmp_path: Path) -> None:
    first = srpfl.FedRep(personal=lambda name: name.startswith("fc3"))
    other = srpfl.FedRep(personal=lambda name: name.startswith("fc2"))
    tiny.simulate(algorithm=first, out=tmp_path / "run", rounds=2)
    tiny.simulate(algorithm=first, out=tmp_path / "run", rounds=2, resume=True)
    with pytest.raises(RunFolderError, match="differs in algorithm"):
        tiny.simulate(algorithm=other, out=tmp_path / "run", rounds=2, resume=True)

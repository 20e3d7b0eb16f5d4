"""The benchmark compares like with like."""

from __future__ import annotations

from dataclasses import replace

import pytest

from srpfl.bench import SETTINGS, compare
from srpfl.bench.plain import PlainEngine
from srpfl.errors import SrpflError


def test_the_plain_loop_does_the_same_work() -> None:
    small = replace(SETTINGS["lenet-augmented"], clients=2, samples=20)
    found = compare("small", small, repeats=2, engine="vectorised")
    assert len(found.ours) == len(found.plain) == len(found.ratios) == 2
    assert found.losses[0] == pytest.approx(found.losses[1], rel=0.1)


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

"""Work in flight outlasts a restart."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from srpfl.runs.checkpoint import Checkpoints
from srpfl.runs.flights import read_flights
from srpfl.runs.state import ClientParts, Flight, State


def test_who_is_at_work_and_what_they_were_sent_come_back(tmp_path: Path) -> None:
    shared, slots = {"w": torch.arange(3.0)}, {"c": {"w": torch.ones(3)}}
    began = State(0, 0.0, shared, {}, (), slots)
    flights = (
        Flight(4, 1, 0.5, 0.1 + 0.2),
        Flight(2, 2, 1 / 3, math.inf, lost=True),
        Flight(3, 2, 1 / 3, 1.0, part=0.3),
    )
    versions = {1: {"w": torch.zeros(3), "@c/w": torch.full((3,), 0.1)}, 2: dict(shared)}
    state = State(3, 1.0, shared, {}, (), slots, flights, versions)
    Checkpoints(tmp_path).save(state, ClientParts({}))
    found, _ = Checkpoints(tmp_path).load(
        began, ClientParts({}), rounds=3, say=pytest.fail, sealed=True
    )
    assert found.flights == flights
    assert found.versions.keys() == versions.keys()
    for version, part in versions.items():
        assert {n: v.tolist() for n, v in part.items()} == {
            n: v.tolist() for n, v in found.versions[version].items()
        }


def test_a_flight_that_nobody_wrote_is_refused() -> None:
    for told in ([[1, 2, 0.0, 1.0, 1.0]], [[1.5, 2, 0.0, 1.0, 1.0, False]], [[1, 2, 0, "x", 1, 0]]):
        with pytest.raises(ValueError):  # noqa: PT011 - the text is of no matter
            read_flights(told)

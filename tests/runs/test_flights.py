"""Work in flight outlasts a restart."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from srpfl.runs.checkpoint import Checkpoints
from srpfl.runs.flights import read_flights
from srpfl.runs.state import ClientParts, Flight, State


def test_who_is_at_work_and_what_they_were_sent_come_back(tmp_path: Path) -> None:
    shared, slots = {"w": torch.arange(3.0)}, {"c": {"w": torch.ones(3)}}
    began = State(0, 0.0, shared, {}, (), slots)
    flights = (
        Flight(4, 1, 0.25, 0.1 + 0.2),
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
    good = [1, 2, 0.0, 1.0, 1.0, False]
    assert read_flights([good]) == (Flight(1, 2, 0.0, 1.0),)
    odd = [(0, -1), (0, 1.5), (1, -1), (2, 2.0), (2, -1.0), (3, "x"), (4, 0.0), (4, 2.0), (5, 0)]
    for told in (5, [good[:5]], [good, good], *([_with(good, *each)] for each in odd)):
        with pytest.raises((ValueError, TypeError)):  # the text is of no matter
            read_flights(told)


def _with(flight: list[Any], place: int, value: Any) -> list[Any]:
    return [*flight[:place], value, *flight[place + 1 :]]


def test_flights_are_of_this_run(tmp_path: Path) -> None:
    shared = {"w": torch.arange(3.0)}
    state = State(1, 1.0, shared, {}, (), {}, (Flight(4, 0, 0.0, 2.0),), {0: dict(shared)})
    began = State(0, 0.0, shared, {})

    def loaded(state: State, clients: int) -> int:
        said: list[str] = []
        Checkpoints(tmp_path).save(state, ClientParts({}))
        parts = ClientParts({}, clients=clients)
        found, _ = Checkpoints(tmp_path).load(began, parts, rounds=1, say=said.append, sealed=True)
        assert found.round or "is damaged" in said[0]
        return found.round

    assert loaded(state, clients=5) == 1
    assert loaded(state, clients=4) == 0  # nobody has that number
    assert loaded(replace(state, versions={}), clients=5) == 0  # what it was sent is gone
    assert loaded(replace(state, participants=(5,)), clients=5) == 0

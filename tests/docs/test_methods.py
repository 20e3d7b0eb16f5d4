"""The page of methods says something of each, and what it says of bytes is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from algorithms import every
from srpfl.loop.costs import Costs, bytes_of
from srpfl.options.methods import METHODS

PAGE = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()
LINES = {
    name: [cell.strip() for cell in line.split("|")[1:-1]]
    for line in PAGE.splitlines()
    if line.startswith("| `")
    for name in re.findall(r"`([\w-]+)`", line.split("|")[1])
}


def test_every_method_has_a_line_and_every_line_a_method() -> None:
    assert LINES.keys() == METHODS.keys()
    assert {len(cells) for cells in LINES.values()} == {8}


@pytest.mark.parametrize("name", METHODS)
def test_bytes_are_those_of_the_clock(name: str) -> None:
    """In whole models; scalars beside them do not count."""
    algorithm = every.algorithm(METHODS[name].algorithm.__name__)
    model = algorithm.prepared(every.model(type(algorithm).__name__))
    parts = algorithm.split(model)
    costs, whole = Costs.of(algorithm, parts), sum(p.numel() for p in model.parameters()) * 4
    sent = algorithm.sends(algorithm.server_state(parts))
    down = bytes_of(parts.shared) + sum(bytes_of(slot) for slot in sent.values())
    up = costs.answer + (costs.gradient if algorithm.wants_gradient else 0)
    told = LINES[name][4]
    if re.fullmatch(r"\d, \d", told):
        assert told == f"{round(down / whole)}, {round(up / whole)}"
    elif told.endswith(", 1"):
        assert round(up / whole) == 1
        assert down > 1.5 * whole
    elif told == "φ, φ":
        assert bytes_of(parts.shared) == down == up < whole


@pytest.mark.parametrize("name", METHODS)
def test_how_it_is_judged_is_as_the_page_says(name: str) -> None:
    headline = METHODS[name].algorithm.headline
    told = LINES[name][6]
    assert told.startswith(headline) or told == "as those"


@pytest.mark.parametrize("name", METHODS)
def test_what_a_client_keeps_is_as_the_page_says(name: str) -> None:
    algorithm = every.algorithm(METHODS[name].algorithm.__name__)
    model = algorithm.prepared(every.model(type(algorithm).__name__))
    parts = algorithm.split(model)
    keeps = bool(parts.personal or algorithm.client_state(parts))
    untouched = name == "fedbabu"  # it has a head, which is always the first one
    assert bool(LINES[name][5]) == (keeps and not untouched)

"""Work in flight, as a checkpoint keeps it: who is at work in JSON, what they were sent as tensors.

Clients that were sent the same version of the shared part share it there too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from srpfl.core.split import Params
from srpfl.runs.records import are_numbers
from srpfl.runs.state import Flight

MARK = "#"  # no parameter's or slot's name begins with it


def told_flights(flights: Sequence[Flight]) -> list[list[Any]]:
    """The flights as JSON, in which there is no infinity.

    >>> told_flights([Flight(client=3, version=7, began=1.5, due=math.inf)])
    [[3, 7, 1.5, None, 1.0, False]]
    """
    return [
        [f.client, f.version, f.began, f.due if f.due < math.inf else None, f.part, f.lost]
        for f in flights
    ]


def read_flights(told: Any) -> tuple[Flight, ...]:
    """The inverse of :func:`told_flights`; refuses what it cannot have written."""
    flights = {}
    for client, version, began, due, part, lost in told:
        numbers = [client, version, began, began if due is None else due, part]
        if (
            not are_numbers(numbers)
            or [type(client), type(version), type(lost)] != [int, int, bool]
            or not (client >= 0 and version >= 0 and 0 < part <= 1)
            or not 0 <= began <= numbers[3]
            or client in flights
        ):
            raise ValueError("a flight is not what was written")
        due = math.inf if due is None else due
        flights[client] = Flight(client, version, began, due, part, lost)
    return tuple(flights.values())


def named_versions(versions: Mapping[int, Params]) -> Params:
    """The tensors of all versions by name.

    >>> import torch
    >>> sorted(named_versions({4: {"w": torch.ones(1)}, 7: {"w": torch.ones(1)}}))
    ['#4/w', '#7/w']
    """
    return {
        f"{MARK}{version}/{name}": value
        for version, part in versions.items()
        for name, value in part.items()
    }


def names_by_version(names: Iterable[str]) -> dict[int, list[str]]:
    """Which tensors each version has, of all names in a file.

    >>> names_by_version(["w", "#4/w", "#4/@c/w"])
    {4: ['w', '@c/w']}
    """
    found: dict[int, list[str]] = {}
    for name in names:
        if name.startswith(MARK):
            version, _, rest = name[1:].partition("/")
            found.setdefault(int(version), []).append(rest)
    return found

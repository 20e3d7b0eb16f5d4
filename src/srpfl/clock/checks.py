"""Whether a clock's answers are times: asked at one place, of every clock."""

from __future__ import annotations

import math

import numpy as np

from srpfl.clock.base import Clock, ComesAndGoes, FloatArray, IntArray, Work
from srpfl.clock.exponential import LONGEST, check_communication
from srpfl.errors import ConfigError, number, shown


def times_of(
    clock: Clock, seed: int, round: int, clients: IntArray, population: int, work: Work
) -> FloatArray:
    """The clock's time for each of the clients; infinity is that of one who never answers, and any
    time that sums would not stand is as good as that."""
    name = type(clock).__name__
    found = clock.times(seed, round, clients, population, work)
    try:
        given = np.asarray(found)
        if given.dtype.kind not in "iufO" or np.ma.is_masked(found):
            raise TypeError
        times = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise ConfigError(f"the clock {name} must give numbers, not {shown(found)}") from None
    if times.shape != clients.shape:
        raise ConfigError(
            f"the clock {name} must give one time for each of the {len(clients)} clients that are "
            f"asked, and in round {round + 1} gave {_how_many(times)}"
        )
    wrong = ~(times >= 0)  # NaN too
    if wrong.any():
        place = int(np.argmax(wrong))
        raise ConfigError(
            f"the clock {name} says that client {clients[place]} takes {times[place]:g} in round "
            f"{round + 1}: a time is zero or more, or infinity for a client that never answers"
        )
    return np.where(times <= LONGEST, times, math.inf)


def stays_of(
    clock: Clock, seed: int, clients: IntArray, population: int, time: float
) -> tuple[FloatArray, FloatArray] | None:
    """When the clients' stays begin and end, at this time or after it; None where the clock's
    clients can always be reached."""
    if not isinstance(clock, ComesAndGoes):
        return None
    found = clock.stays(seed, clients, population, time)
    try:
        begins, ends = (np.asarray(each, dtype=np.float64) for each in found)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        begins = ends = np.empty(0)
    right = begins.shape == ends.shape == clients.shape
    if not right or not ((ends > time) | (begins == math.inf)).all() or not (ends >= begins).all():
        raise ConfigError(
            f"the clock {type(clock).__name__} must give a begin and an end of a stay for each of "
            f"the {len(clients)} clients, and the end must be after {time:g}"
        )
    return begins, ends


def communication_of(clock: Clock) -> float:
    """What the clock says a round costs beside the clients' computing."""
    cost = number(f"the communication of the clock {type(clock).__name__}", clock.communication)
    check_communication(cost)
    return cost


def _how_many(times: FloatArray) -> str:
    return f"{len(times)}" if times.ndim == 1 else f"an array of shape {times.shape}"

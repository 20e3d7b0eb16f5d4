"""Traces of real devices: CSV files that say what happened when, played again and again."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from srpfl.clock.base import FloatArray
from srpfl.errors import DataError


@dataclass(frozen=True)
class Stays:
    """When a phone can be reached, over and over."""

    begins: FloatArray  # ascending, from 0
    ends: FloatArray
    length: float  # of the trace

    def at(self, time: float) -> tuple[float, float]:
        """Begin and end of the stay at this time, or of the next one.

        >>> phone = Stays(np.array([2.0, 7.0]), np.array([3.0, 9.0]), 10.0)
        >>> [phone.at(time) for time in (0.0, 2.5, 8.0, 9.0, 12.5)]
        [(2.0, 3.0), (2.0, 3.0), (7.0, 9.0), (12.0, 13.0), (12.0, 13.0)]
        """
        lap = np.floor(time / self.length) * self.length
        place = int(np.searchsorted(self.ends, time - lap, side="right"))
        if place == len(self.ends):
            lap, place = lap + self.length, 0
        return float(lap + self.begins[place]), float(lap + self.ends[place])


@dataclass(frozen=True)
class Throughput:
    """How fast a network is, over and over."""

    starts: FloatArray  # of each sample, ascending, from 0; the last is the trace's end
    moved: FloatArray  # bytes moved until then

    def seconds(self, bytes: float, start: float) -> float:
        """How long so many bytes take from this time on.

        >>> slow_then_fast = Throughput(np.array([0.0, 10.0, 20.0]), np.array([0.0, 10.0, 110.0]))
        >>> [slow_then_fast.seconds(15, start) for start in (0.0, 10.0, 19.0)]
        [10.5, 1.5, 6.0]
        """
        length, whole = self.starts[-1], self.moved[-1]
        laps, phase = np.floor(start / length), start % length
        until = np.interp(phase, self.starts, self.moved) + bytes
        more, rest = np.divmod(until, whole)
        end = (laps + more) * length + np.interp(rest, self.moved, self.starts)
        return float(end - start)


@lru_cache(maxsize=4)
def stays_from(intervals: str, devices: str) -> tuple[Stays, ...]:
    """The phones of a file of intervals (device_id, start, end), each with its trace's span
    (device_id, trace_start, trace_end)."""
    spans = {
        row[0]: (row[1], row[2])
        for row in numbers(devices, ["device_id", "trace_start", "trace_end"])
    }
    by_phone: dict[float, list[tuple[float, float]]] = {}
    for phone, start, end in numbers(intervals, ["device_id", "start", "end"]):
        if end > start:
            by_phone.setdefault(phone, []).append((start, end))
    phones = []
    for phone, stays in sorted(by_phone.items()):
        if phone not in spans or spans[phone][1] <= spans[phone][0]:
            raise DataError(f"{devices} does not say from when to when device {phone:g} was seen")
        origin, last = spans[phone]
        times = np.array(sorted(stays)) - origin
        if (times[1:, 0] < times[:-1, 1]).any() or times[0, 0] < 0 or times[-1, 1] > last - origin:
            raise DataError(f"{intervals}: the intervals of device {phone:g} do not fit its trace")
        phones.append(Stays(times[:, 0], times[:, 1], last - origin))
    if not phones:
        raise DataError(f"{intervals} holds no phone that can ever be reached")
    return tuple(phones)


@lru_cache(maxsize=4)
def throughputs_from(bandwidth: str) -> tuple[Throughput, ...]:
    """The networks of a file of samples (trace_id, time_s, mbit_s), each until the next."""
    by_trace: dict[float, list[tuple[float, float]]] = {}
    for trace, time, speed in numbers(bandwidth, ["trace_id", "time_s", "mbit_s"]):
        by_trace.setdefault(trace, []).append((time, speed))
    found = []
    for trace, samples in sorted(by_trace.items()):
        table = np.array(samples)
        times = np.append(table[:, 0], 2 * table[-1, 0] - table[-2, 0]) if len(table) > 1 else None
        if times is None or (np.diff(times) <= 0).any() or not table[:, 1].any():
            raise DataError(f"{bandwidth}: trace {trace:g} must have rising times and some speed")
        # Nothing would ever pass where a network has no speed at all, so that is never zero.
        speeds = np.maximum(table[:, 1], 1e-6) * 1e6 / 8
        moved = np.concatenate([[0.0], np.cumsum(np.diff(times) * speeds)])
        found.append(Throughput(times - times[0], moved))
    if not found:
        raise DataError(f"{bandwidth} holds no trace")
    return tuple(found)


def numbers(path: str, columns: Sequence[str]) -> list[tuple[float, ...]]:
    """Columns of a CSV file; rows in which one of them is empty are left out."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            missing = [name for name in columns if name not in (rows.fieldnames or [])]
            if missing:
                raise DataError(f"{path} has no column '{missing[0]}'")
            found = []
            for row in rows:
                if all(row[name] not in ("", None) for name in columns):
                    found.append(tuple(float(row[name]) for name in columns))
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"cannot read the trace in {path}: {error}") from error
    if not all(np.isfinite(row).all() and min(row) >= 0 for row in found):
        raise DataError(f"{path} holds numbers that are negative or not finite")
    return found

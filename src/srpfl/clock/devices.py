"""Times from real devices: computing by a phone's speed, transfer by its network's."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from srpfl.clock.base import FloatArray, IntArray, Work
from srpfl.clock.draws import normal_pairs, wholes
from srpfl.clock.exponential import LONGEST, check_communication
from srpfl.core.fields import check_fields
from srpfl.errors import ConfigError, DataError, number, shown

SPEED = "cpu_float_score"
SMALLEST, LARGEST = 1e-30, 1e30  # of a column: beyond that, times would not be numbers
REFERENCE_SCORE = 1000.0  # `seconds_per_sample` is the time of a device with this score


@dataclass(frozen=True, kw_only=True)
class DeviceProfiles:
    """T_i = samples·seconds/speed_i + bytes/network_i, devices and networks read from CSV files.

    Each client gets a device and a network of its own by the seed. The devices' file needs the
    column ``cpu_float_score`` (work per second is proportional to it). The networks' file is
    optional and has ``down_mean, down_std, up_mean, up_std`` in kB/s: a round's bandwidth is
    normal, and never below a tenth of its mean.
    """

    devices: str | Path
    networks: str | Path | None = None
    seconds_per_sample: float = 0.01
    communication: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        check_communication(self.communication)
        if not 0 < number("seconds_per_sample", self.seconds_per_sample) < LONGEST:
            raise ConfigError(
                f"seconds_per_sample must be a positive number, not {self.seconds_per_sample}"
            )
        _ = self._scores, self._bandwidths  # read now: a wrong file is found before the run

    @property
    def fixed(self) -> bool:
        return self.networks is None

    def times(
        self, seed: int, round: int, clients: IntArray, population: int, work: Work
    ) -> FloatArray:
        owned = wholes(seed, "device", clients, population, len(self._scores))
        with np.errstate(over="ignore"):  # some may take for ever
            computing: FloatArray = (
                work.samples * self.seconds_per_sample * REFERENCE_SCORE / self._scores[owned]
            ) * work.share
        if self._bandwidths is None:
            return computing
        mean, spread = self._bandwidths  # networks x (down, up), bytes per second
        used = wholes(seed, "network", clients, population, len(mean))
        noise = normal_pairs(seed, "bandwidth", clients, population, round)
        speed = np.maximum(mean[used] + spread[used] * noise, mean[used] / 10)
        transfer: FloatArray = work.down / speed[:, 0] + work.up / speed[:, 1]
        return computing + transfer

    @cached_property
    def _scores(self) -> FloatArray:
        return _columns(self.devices, [SPEED])[:, 0]

    @cached_property
    def _bandwidths(self) -> tuple[FloatArray, FloatArray] | None:
        if self.networks is None:
            return None
        table = _columns(self.networks, ["down_mean", "up_mean", "down_std", "up_std"]) * 1000
        return table[:, :2], table[:, 2:]


def _columns(path: str | Path, names: Sequence[str]) -> FloatArray:
    if not isinstance(path, (str, os.PathLike)):
        raise ConfigError(f"device profiles are the path of a CSV file, not {shown(path)}")
    try:
        # Spreadsheets begin their files with a byte-order mark.
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, ValueError, csv.Error, MemoryError) as error:
        raise DataError(f"cannot read the device profiles in {path}: {error}") from error
    if not rows:
        raise DataError(f"{path} holds no device profiles")
    return np.array([[_number(row, name, path, i) for name in names] for i, row in enumerate(rows)])


def _number(row: Mapping[str | None, str], name: str, path: str | Path, index: int) -> float:
    if name not in row:
        has = " ".join(", ".join(column for column in row if column is not None).split())
        raise DataError(f"{path} has no column '{name}' (its columns: {has[:200]})")
    if None in row:  # such as of numbers with a decimal comma
        raise DataError(f"{path}, row {index + 1}: it has more values than there are columns")
    try:
        value = float(row[name])
    except (TypeError, ValueError):
        value = float("nan")
    spread = name.endswith("_std")
    if not (SMALLEST <= value <= LARGEST or (spread and 0 <= value <= LARGEST)):
        raise DataError(
            f"{path}, row {index + 1}: {name} must be a positive number from {SMALLEST:g} to "
            f"{LARGEST:g}"
        )
    return value

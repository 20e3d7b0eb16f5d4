"""How much a file may unfold to, asked before anything is allocated for it.

A file of a few kilobytes can promise terabytes. Nobody's honest data is packed like that, so a file
may take a gibibyte, or fifty times its own size where that is more. If you mean it, raise the
limit: ``SRPFL_MAX_GIB`` for memory, ``SRPFL_MAX_CLASSES`` for classes.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from srpfl.errors import ConfigError, DataError

GIB = 1 << 30
ALWAYS = GIB  # bytes that any file may take
RATIO = 50  # how many times its own size a file may take
CLASSES = 100_000
NAME = 1000  # characters of an owner's name
MAX_GIB, MAX_CLASSES = "SRPFL_MAX_GIB", "SRPFL_MAX_CLASSES"


def allowed(file: Path) -> int:
    """Bytes that the content of a file may take in memory."""
    chosen = from_environment(MAX_GIB)
    if chosen is not None:
        return int(min(chosen, 1 << 30) * GIB)
    return max(ALWAYS, RATIO * file.stat().st_size)


def check_bytes(wanted: int, file: Path) -> None:
    """Refuse a file that would take more memory than such a file may."""
    try:
        most, own = allowed(file), file.stat().st_size
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error}") from error
    if wanted > most:
        raise DataError(
            f"{file} has {own:,} bytes and would take {_gib(wanted)} GiB in memory, more than the "
            f"{_gib(most)} GiB that it may: it is damaged or a trap, or set {MAX_GIB}="
            f"{math.ceil(wanted / GIB)} to read it"
        )


def check_classes(classes: int, where: str) -> None:
    """Refuse labels that would make more classes than anybody has."""
    chosen = from_environment(MAX_CLASSES)
    most = CLASSES if chosen is None else int(min(chosen, 1 << 40))
    if classes > most:
        raise DataError(
            f"{where} has the label {classes - 1}, which would make {classes:,} classes, more than "
            f"{most:,}: number the classes from 0 on, or set {MAX_CLASSES}={classes} if that is "
            "meant"
        )


def check_name(name: str, where: str) -> str:
    """Refuse a name that is a text: all names of an array take as much room as the longest."""
    if len(name) > NAME:
        raise DataError(f"{where} has a name of {len(name):,} characters, more than {NAME:,}")
    return name


def from_environment(variable: str) -> float | None:
    """The number that a variable of the environment sets, if any."""
    text = os.environ.get(variable)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value > 0:
        raise ConfigError(f"{variable} must be a positive number, not '{text}'")
    return value


def _gib(size: int) -> str:
    return f"{size / GIB:,.1f}"

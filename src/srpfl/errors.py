"""Every error that a user can cause or mend. The command shows its one sentence, no traceback."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, SupportsFloat, SupportsIndex


class SrpflError(Exception):
    """Something the user can do something about; the message says what."""


class ConfigError(SrpflError):
    """An option, or a combination of options, makes no sense."""


class DataError(SrpflError):
    """Data is missing, broken, or does not fit the partition."""


class RunFolderError(SrpflError):
    """A run folder cannot be used: it holds another run, is damaged, or cannot be written."""


class DivergedError(SrpflError):
    """Training produced a loss that is not a finite number."""


def unknown(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """The error for a name that does not exist, with the nearest one that does.

    >>> print(unknown("method", "fedrap", ["fedavg", "fedrep"]))
    unknown method 'fedrap': did you mean 'fedrep'? (known: fedavg, fedrep)
    """
    known = sorted(known)
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return ConfigError(f"unknown {kind} '{name}': {hint}(known: {', '.join(known)})")


def whole(name: str, value: Any) -> int:
    """A whole number of any library, or one clear sentence.

    >>> whole("rounds", 3)
    3
    """
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        return operator.index(value)
    raise ConfigError(f"{name} must be a whole number, not {value!r}")


def number(name: str, value: Any) -> float:
    """A number of any library, or one clear sentence.

    >>> number("the margin", 0.5)
    0.5
    """
    if isinstance(value, SupportsFloat) and not isinstance(value, bool):
        return float(value)
    raise ConfigError(f"{name} must be a number, not {value!r}")

"""Every error that a user can cause or mend. The command shows its one sentence, no traceback."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, SupportsFloat, SupportsIndex

LONGEST = 60  # characters of a value in a message
SAID = 1000  # characters of a message; the middle of a longer one is left out


class SrpflError(Exception):
    """Something the user can do something about; the message says what.

    >>> print(SrpflError("there is no a\\nb"))
    there is no a\\nb
    """

    def __str__(self) -> str:
        text = printable(super().__str__())
        return text if len(text) <= SAID else f"{text[: SAID // 2]}...{text[-SAID // 3 :]}"


class ConfigError(SrpflError):
    """An option, or a combination of options, makes no sense."""


class DataError(SrpflError):
    """Data is missing, broken, or does not fit the partition."""


class RunFolderError(SrpflError):
    """A run folder cannot be used: it holds another run, is damaged, or cannot be written."""


class DivergedError(SrpflError):
    """Training produced a loss that is not a finite number, or has grown beyond all measure."""


class SrpflWarning(UserWarning):
    """Something works, but not in the way or at the speed that was asked for."""


def printable(text: str) -> str:
    """A text in one line without what a terminal would act on, such as a name in a stranger's file.

    >>> print(printable("a\\nb\\x1b[2J"))
    a\\nb\\x1b[2J
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def unknown(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """The error for a name that does not exist, with the nearest one that does.

    >>> print(unknown("method", "fedrap", ["fedavg", "fedrep"]))
    unknown method 'fedrap': did you mean 'fedrep'? (known: fedavg, fedrep)
    """
    known = sorted(known)
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f": did you mean '{near[0]}'?" if near else ""
    told = name if len(name) <= LONGEST else f"{name[:LONGEST]}..."
    return ConfigError(f"unknown {kind} '{told}'{hint} (known: {', '.join(known)})")


def whole(name: str, value: Any) -> int:
    """A whole number of any library, or one clear sentence.

    >>> whole("rounds", 3)
    3
    """
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        try:
            return operator.index(value)
        except (TypeError, ValueError, RuntimeError):  # an array of several, or one without values
            pass
    raise ConfigError(f"{name} must be a whole number, not {shown(value)}")


def number(name: str, value: Any) -> float:
    """A number of any library, or one clear sentence.

    >>> number("the margin", 0.5)
    0.5
    """
    if isinstance(value, SupportsFloat) and not isinstance(value, bool):
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):  # several, or beyond floats
            pass
    raise ConfigError(f"{name} must be a number, not {shown(value)}")


def check_finite(name: str, value: Any) -> None:
    """Refuse NaN and infinity, however deep inside: a run's config.json cannot hold them.

    >>> check_finite("set", {"lr": [0.1, float("nan")]})
    Traceback (most recent call last):
    srpfl.errors.ConfigError: option 'set.lr' must be a finite number, not nan
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"option '{name}' must be a finite number, not {value}")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            check_finite(f"{name}.{key}", inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            check_finite(name, inner)


def shown(value: Any, longest: int = LONGEST) -> str:
    """A value as a message can show it: in one line, and never long.

    >>> shown([0] * 1000)
    '[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0...'
    """
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a value that cannot even be printed
        text = f"<{type(value).__name__}>"
    return text if len(text) <= longest else f"{text[:longest]}..."


@contextmanager
def enough_memory(what: str) -> Iterator[None]:
    """Turn a lack of memory into one sentence, no matter who found it: Python, NumPy or PyTorch.

    >>> with enough_memory("the model"):
    ...     raise MemoryError
    Traceback (most recent call last):
    srpfl.errors.ConfigError: there is not enough memory for the model: make it smaller
    """
    try:
        yield
    except (MemoryError, RuntimeError, ValueError, OverflowError, ConfigError) as error:
        # What a model's own code raised has become a sentence of its own, about the model.
        cause = error.__cause__ if isinstance(error, ConfigError) else error
        if cause is None or not _lacks_memory(cause):
            raise
        raise ConfigError(f"there is not enough memory for {what}: make it smaller") from error


def _lacks_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    said = str(error)
    return any(sign in said for sign in OUT_OF_MEMORY)


# What NumPy and PyTorch say of arrays that no machine can hold.
OUT_OF_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "Maximum allowed dimension exceeded",
    "array is too big",
    "Storage size calculation overflowed",
    "maximum allowed size",
)

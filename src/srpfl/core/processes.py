"""Other processes: what those that we fork must not hold, and what went wrong in them."""

from __future__ import annotations

import os
import pickle
import traceback
import weakref
from typing import NoReturn, Protocol, TypeVar


class _Closes(Protocol):
    def close(self) -> object: ...


T = TypeVar("T", bound=_Closes)
_ours: weakref.WeakSet[_Closes] = weakref.WeakSet()


def ours_alone(thing: T) -> T:
    """Something that is closed in every process that is forked, by whomever: a lock that a copy
    would keep after we have ended, a line whose other end would not see that we have."""
    _ours.add(thing)
    return thing


def _close_in_child() -> None:
    for thing in _ours:
        thing.close()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_close_in_child)


class ElsewhereError(Exception):
    """The cause of an error that came from another process: the lines of code on its way there,
    which pickle would leave behind."""

    def __init__(self, lines: traceback.StackSummary) -> None:
        super().__init__("in another process:\n" + "".join(lines.format()))
        self.lines = lines


class Failure:
    """An error on its way to another process."""

    def __init__(self, error: BaseException) -> None:
        lines = traceback.extract_tb(error.__traceback__)
        self.lines = [(each.filename, each.lineno or 0, each.name, each.line) for each in lines]
        self.error = error if _travels(error) else RuntimeError(f"{type(error).__name__}: {error}")

    def raise_here(self) -> NoReturn:
        raise self.error from ElsewhereError(traceback.StackSummary.from_list(self.lines))


def _travels(error: BaseException) -> bool:
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:  # whatever a class of the user's own does
        return False


def lines_of(error: BaseException) -> list[traceback.FrameSummary]:
    """The lines of code that an error came through, the innermost last."""
    here = traceback.extract_tb(error.__traceback__)
    there = error.__cause__.lines if isinstance(error.__cause__, ElsewhereError) else []
    return [*here, *there]

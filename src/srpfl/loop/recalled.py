"""A policy that continues with what a folder says it remembers, which may be anything."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, cast

import numpy as np

from srpfl.errors import RunFolderError
from srpfl.participation.base import Participation

STRANGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def recalling(policy: Participation, folder: Path) -> Participation:
    """The policy, for whom a memory that is not its own is a sentence."""
    return cast(Participation, _Recalling(policy, folder))


class _Recalling:
    def __init__(self, policy: Participation, folder: Path) -> None:
        self._policy, self._folder = policy, folder

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._policy, name)
        return self._careful(found) if callable(found) else found

    def _careful(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def called(*given: Any) -> Any:
            try:
                with np.errstate(divide="raise", over="raise", invalid="raise"):  # else it warns
                    return method(*given)
            except STRANGE as error:
                raise RunFolderError(
                    f"{type(self._policy).__name__} cannot go on with what it remembers in "
                    f"{self._folder} ({type(error).__name__}: {error}): play the run again in "
                    "another folder"
                ) from error

        return called

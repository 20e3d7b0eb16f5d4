"""Python's search for circles of objects that nobody else refers to."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

OFTEN = 50_000  # new objects until the youngest are searched; Python's own number is 700
LATER = 20  # such searches until the next older ones are, and so on

_lock = threading.Lock()
_usual: list[tuple[int, int, int]] = []  # what held before, for each run that is played now


@contextmanager
def seldom_collected() -> Iterator[None]:
    """That search, less often. A round makes some hundred objects for each client and no circles.
    The search would take a sixth of a short round, and most of one with thousands of clients."""
    with _lock:
        _usual.append(_usual[0] if _usual else gc.get_threshold())
        if _usual[0][0]:  # else somebody has switched it off
            gc.set_threshold(max(OFTEN, _usual[0][0]), LATER, LATER)
    try:
        yield
    finally:
        with _lock:
            before = _usual.pop()
            if not _usual:
                gc.set_threshold(*before)

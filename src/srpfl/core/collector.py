"""Python's search for circles of objects that nobody else refers to."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Without that search. It begins whenever there are so many objects more, and now and then goes
    through all that there are; a cohort of thousands, which makes no circles, starts it again and
    again for nothing."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()

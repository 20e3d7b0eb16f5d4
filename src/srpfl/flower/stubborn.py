"""Calls to the SuperLink that fail once are made again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from srpfl.flower.events import say

LONGEST = 240.0  # seconds; the SuperLink forgets a broken-off upload after 180
BETWEEN = 5.0


def stubborn(
    call: Callable[..., Any],
    *given: Any,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Any:
    """What a call to the SuperLink returns, which may fail on its side, or not keep a part of a
    letter: its database was locked, or a node stands in the way with what it uploads."""
    import httpx
    from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

    ends = now() + LONGEST
    while True:
        try:
            return call(*given)
        except httpx.HTTPStatusError as error:
            if error.response.status_code < 500 or now() > ends:
                raise
            what = str(error.response.status_code)
        except ObjectPushError:
            if now() > ends:
                raise
            what = "it did not keep a part of a letter"
        why = f"the SuperLink fails ({what}), and is asked again"
        say(why, level="warning", kind="superlink")
        sleep(BETWEEN)

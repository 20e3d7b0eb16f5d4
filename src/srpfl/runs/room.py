"""How much memory the files of a run folder may take, asked before they are unfolded.

A folder may come from anybody. JSON takes up to 25 times its own size in memory, and how much it
takes at most can be told from a few of its characters. So memory is bounded, not sizes of files.
"""

from __future__ import annotations

import math
from pathlib import Path

from srpfl.data.limits import GIB, MAX_GIB, from_environment
from srpfl.errors import RunFolderError

RECORDS = 2.0  # GiB that the records of a run may take; 10,000 clients in 1,000 rounds take one
TEXTS = 4  # a line, or any other JSON text, may have the fourth part of it

# Bytes that Python takes at most for what a character stands for, with its place in a list.
TAKEN = {b",": 44, b'"': 32, b":": 16, b"[": 100, b"{": 100}
WIDE = 4  # bytes of every character of a string, if one of them needs so many


def weight(text: bytes) -> int:
    """Bytes that a JSON text takes at most once it is read.

    >>> weight(b"[{},{},{}]")
    498
    """
    narrow = text.isascii() and b"\\u" not in text
    own = len(text) if narrow else WIDE * len(text)
    return own + sum(each * text.count(sign) for sign, each in TAKEN.items())


class Room:
    """The memory that is left for files that are kept together."""

    def __init__(self, most: int) -> None:
        self.most = self.left = most

    def take(self, text: bytes, path: Path, share: float = 1.0) -> None:
        """Let a text be unfolded, if there is room for it. ``share`` is that of the file which has
        been read with it."""
        self.left -= weight(text)
        if self.left < 0:
            raise self.refused(path, (self.most - self.left) / share)

    def refused(self, path: Path, wanted: float) -> RunFolderError:
        enough = math.ceil(10 * wanted / self.most * largest() / GIB) / 10
        return RunFolderError(
            f"{path} would take {wanted / GIB:,.3g} GiB in memory, more than the "
            f"{self.most / GIB:,.3g} GiB that there are for it: it is damaged or a trap, or set "
            f"{MAX_GIB}={enough:g} to read it"
        )


def largest() -> int:
    """Bytes that the records of a run may take in memory."""
    chosen = from_environment(MAX_GIB) or RECORDS
    return max(1024, int(min(chosen, 1 << 30) * GIB))

"""Names of files from names of runs: whatever a run is called, its files stay where they belong."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

OTHERS = re.compile(r"[^\w .,;=+#@()\[\]-]+")  # separators, quotes, wild cards, what is not shown
LONGEST = 120  # bytes; file systems take 255, and something is put behind a name
DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # on Windows


def file_name(text: str) -> str:
    """A name for one file or folder, which never leads out of the folder that it is in.

    >>> [file_name(text) for text in ("srpfl, seed 1", "../../escaped", "/etc", "..", "a\\0b")]
    ['srpfl, seed 1', 'escaped', 'etc', 'run', 'a-b']
    """
    name = OTHERS.sub("-", text).strip(" .-")
    if len(name.encode()) > LONGEST:
        short = name.encode()[: LONGEST - 9].decode(errors="ignore")
        name = f"{short}-{zlib.crc32(text.encode(errors='surrogatepass')):08x}"
    if not name or DEVICES.fullmatch(name):
        name = f"run-{name}".strip("-")
    return name


def file_names(texts: Sequence[str]) -> list[str]:
    """Names for several, no two of which are the same on any file system.

    >>> file_names(["a/b", "a-b", "A-b"])
    ['a-b', 'a-b-2', 'A-b-3']
    """
    names: list[str] = []
    taken: set[str] = set()
    for text in texts:
        first = name = file_name(text)
        number = 2
        while name.casefold() in taken:
            name, number = f"{first}-{number}", number + 1
        taken.add(name.casefold())
        names.append(name)
    return names

"""Checksums: a JSON object that carries one as its last entry, "sum".

They are against damage, not against forgery: who can write to a folder can write a sum too.
The lines of a file form a chain, each sum over the one before it as well, so that a line that was
removed, repeated or moved is noticed like a changed digit.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

SEALED = re.compile(rb'(.*\S)\s*,\s*"sum":\s*"([0-9a-f]{16})"\s*\}\s*', re.DOTALL)
DEEPEST = 50  # objects and lists within each other: readers go down by recursion
OBJECT = re.compile(r"(\{.*\S)(\s*)\}(\s*)", re.DOTALL)


def digest(data: bytes | memoryview, before: str = "") -> str:
    found = hashlib.sha256(before.encode() + b"\n")
    found.update(data)
    return found.hexdigest()[:16]


def seal(text: str, before: str = "") -> str:
    """The text of a JSON object, with its sum.

    >>> seal('{"round":1}')
    '{"round":1,"sum":"9a885dc99689ae6a"}'
    """
    found = OBJECT.fullmatch(text)
    if found is None:
        raise ValueError("only an object with entries can carry its sum")
    body, gap, end = found.groups()
    # As JSON is written otherwise: closely in lines, with spaces in a text of many lines.
    comma, colon = (f",{gap}  ", ": ") if gap else (",", ":")
    return f'{body}{comma}"sum"{colon}"{digest(body.encode(), before)}"{gap}}}{end}'


def opened(data: bytes, *, needed: bool, before: str = "") -> tuple[Any, str]:
    """The value of a text, and its sum ("" where there is none, as in older folders).

    A sum that is there must fit; ``needed`` says that there must be one.
    """
    found = SEALED.fullmatch(data)
    if found is None:
        if needed:
            raise ValueError("its checksum is missing")
        return parsed(data), ""
    told = found[2].decode()
    if digest(memoryview(data)[: found.end(1)], before) != told:
        raise ValueError("its checksum does not fit")
    value = parsed(data)
    del value["sum"]
    return value, told


def parsed(data: bytes) -> Any:
    """JSON without what only Python takes for JSON, and not nested as nobody nests it."""
    try:
        value = json.loads(data, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if data.count(b"[") + data.count(b"{") > DEEPEST:
        _check_depth(value)
    return value


def _check_depth(value: Any) -> None:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(DEEPEST):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [item for items in inner for item in items if isinstance(item, (dict, list))]
        if not level:
            return
    raise ValueError("it is nested too deeply")


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number")

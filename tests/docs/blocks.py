"""The code blocks of a page, and the reasons why some of them are not run.

A block is not run if the line before it is ``<!-- not run: REASON -->``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

RUN = {"python", "sh", "bash"}
DATA = {"toml", "json", "text", "html", "bibtex"}  # nothing to run in these
FENCE = re.compile(r"^```(\S*)(?:\s.*)?$")
REASON = re.compile(r"<!-- not run: (.+) -->")


@dataclass(frozen=True)
class Block:
    line: int
    language: str
    code: str
    reason: str | None  # why it is not run


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, but for Sphinx's own directives."""
    found: list[Block] = []
    lines = page.read_text().splitlines()
    number = 0
    while number < len(lines):
        opening = FENCE.match(lines[number])
        number += 1
        if not opening:
            continue
        start = number
        while lines[number] != "```":
            number += 1
        if not opening[1].startswith("{"):
            before = next((line for line in reversed(lines[: start - 1]) if line.strip()), "")
            reason = REASON.fullmatch(before.strip())
            code = "\n".join(lines[start:number]) + "\n"
            found.append(Block(start, opening[1], code, reason[1] if reason else None))
        number += 1
    return found

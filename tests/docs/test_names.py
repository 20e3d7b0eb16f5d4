"""Every name of srpfl that a page's code uses is on the reference page."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from blocks import blocks

import srpfl

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))]
DIRECTIVE = re.compile(r"\.\. auto\w+:: (?:srpfl\.)?(\S+)|:members: (.+)")


def listed() -> set[str]:
    """The last parts of all names on the reference page."""
    found: set[str] = set()
    for name, members in DIRECTIVE.findall((DOCS / "reference.md").read_text()):
        found |= {each.strip().rpartition(".")[2] for each in (name or members).split(",")}
    return found


def used(code: str) -> Iterator[str]:
    """Names after ``srpfl.`` and those that are imported from it. Rooms are no names."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("srpfl"):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.Attribute) and re.match(r"srpfl(\.|$)", ast.unparse(node.value)):
            yield node.attr


ROOMS = {name for name in srpfl.__all__ if type(getattr(srpfl, name)).__name__ == "module"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_in_examples_are_on_the_reference_page(page: Path) -> None:
    names = {n for b in blocks(page) if b.language == "python" for n in used(b.code)}
    assert names - ROOMS - listed() == set()


def test_every_argument_of_simulate_is_explained() -> None:
    told = inspect.getdoc(srpfl.simulate) or ""
    for name in inspect.signature(srpfl.simulate).parameters:
        assert re.search(rf"^    {name}: \S", told, flags=re.MULTILINE), name


def test_public_names_are_on_the_reference_page() -> None:
    assert set(srpfl.__all__) - ROOMS - listed() == set()

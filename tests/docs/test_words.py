"""Plain, modern words in what people read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "results" / "README.md"]
PAGES = [page for page in PAGES if page.name != "commands.md"]  # made of the sources
SOURCES = [p for p in (ROOT / "src").rglob("*") if p.suffix in (".py", ".js", ".html")]
QUAINT = re.compile(r"\b(anew|whoever|in vain|goes on with|dear)\b", re.IGNORECASE)


@pytest.mark.parametrize("files", [PAGES, SOURCES], ids=["pages", "sources"])
def test_nothing_reads_like_an_old_book(files: list[Path]) -> None:
    assert len(files) > 10
    found = {str(file.relative_to(ROOT)): QUAINT.findall(file.read_text()) for file in files}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "docs/glossary.md"])
def test_kinds_of_accuracy_are_defined_or_their_definitions_named(page: str) -> None:
    text = (ROOT / page).read_text()
    assert re.search(r"\*personalised\*", text, re.IGNORECASE)
    assert "glossary.md" in text or all(f"**{kind}**" in text for kind in ("local", "global"))


def test_lines_of_text_fit_100_columns() -> None:
    """Tables, pictures and code may be wider."""
    wide = []
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        lines = [line for line in text.splitlines() if not re.match(r"\s*\||!\[|    ", line)]
        wide += [f"{page.name}: {line[:60]}" for line in lines if len(line) > 100]
    assert wide == []

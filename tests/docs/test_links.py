"""Links and pictures lead somewhere: files, headings, and pages that Sphinx knows."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|<img [^>]*src=\"([^\"]+)\"|srcset=\"([^\"]+)\"")


def anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub and Sphinx name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for found in LINK.finditer(text):
        link = next(part for part in found.groups() if part)
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        assert target.is_relative_to(ROOT)
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}"


def test_the_page_on_pypi_leads_into_the_repository() -> None:
    absolute = runpy.run_path(str(ROOT / "setup.py"))["absolute"]
    page = absolute((ROOT / "README.md").read_text(), "https://example.org/srpfl")
    assert "](https://example.org/srpfl/blob/main/docs/tutorial.md)" in page
    assert "](https://example.org/srpfl/raw/main/docs/images/headline.png)" in page
    links = [next(filter(None, found.groups())) for found in LINK.finditer(page)]
    assert len(links) > 20
    assert all(link.startswith("https://") for link in links)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", ROOT / "docs", tmp_path],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "reference.html").read_text()
    for name in ("accuracy", "time_to", "curve", "module_of", "load", "plot"):
        assert f'id="srpfl.Run.{name}"' in reference
    commands = (tmp_path / "commands.html").read_text()
    for words in ("srpfl run", "srpfl deploy gateway"):
        assert f"Usage: {words} [OPTIONS]" in commands

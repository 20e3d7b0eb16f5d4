"""Every code block of README and docs runs, except those that say why not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from blocks import DATA, RUN, blocks

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one folder, and with one Python namespace: a page is read from top to bottom."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    for block in blocks(page):
        where = f"{page.name}, line {block.line}"
        if block.reason is not None or block.language in DATA:
            continue
        assert block.language in RUN, f"{where}: how is a block of '{block.language}' to be run?"
        if block.language == "python":
            exec(compile(block.code, where, "exec", dont_inherit=True), names)
        else:
            done = subprocess.run(
                ["bash", "-eu", "-c", block.code],
                capture_output=True,
                text=True,
                timeout=300,
                env={
                    **os.environ,
                    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                    "OMP_NUM_THREADS": "1",
                },
            )
            assert done.returncode == 0, f"{where}: {done.stderr}"


def test_every_reason_is_one() -> None:
    for page in PAGES:
        for block in blocks(page):
            assert block.reason is None or len(block.reason.split()) >= 3

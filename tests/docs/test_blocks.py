"""Every code block of README and docs runs, except those that say why not."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from blocks import DATA, RUN, blocks

from command import srpfl

ROOT = Path(__file__).parents[2]
# A line that is nothing but a command of ours with what it is to do.
COMMAND = re.compile(r"^(srpfl [a-z][^\n|<>&;$`]*)\n", re.MULTILINE)
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
            for part in COMMAND.split(block.code):
                run(part, tmp_path, where)


def run(part: str, folder: Path, where: str) -> None:
    """A command of ours in this process, which saves importing PyTorch each time; all else as a
    shell runs it."""
    if COMMAND.match(f"{part}\n"):
        srpfl(*shlex.split(part)[1:], cwd=folder)
        return
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-eu", "-c", part],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, f"{where}: {done.stderr}"


def test_every_reason_is_one() -> None:
    for page in PAGES:
        for block in blocks(page):
            assert block.reason is None or len(block.reason.split()) >= 3


def test_a_command_is_run_as_a_shell_would(tmp_path: Path) -> None:
    code = "echo 'x = 1' > mine.py\nsrpfl doctor nowhere\nsrpfl --version > version\n"
    first, second, third = COMMAND.split(code)
    run(first, tmp_path, "here")
    assert (tmp_path / "mine.py").read_text() == "x = 1\n"
    with pytest.raises(AssertionError):  # what fails there fails here
        run(second, tmp_path, "here")
    run(third, tmp_path, "here")
    assert (tmp_path / "version").read_text()

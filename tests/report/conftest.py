"""The browser is started once for all tests of the report."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from browser import Page, browser, chromium


@pytest.fixture(scope="session")
def page() -> Iterator[Page]:
    program = chromium()
    if program is None:
        if os.environ.get("SRPFL_NEEDS_BROWSER"):
            pytest.fail("SRPFL_NEEDS_BROWSER is set, but there is no Chromium")
        pytest.skip("there is no Chromium: install it, or name it in $CHROMIUM")
    with browser(program) as tab:
        tab.resize(1280, 900)
        yield tab

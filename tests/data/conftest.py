"""A cache of each test's own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and no data folder but the one it names."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("SRPFL_CACHE", str(folder))
    monkeypatch.delenv("SRPFL_DATA", raising=False)
    return folder

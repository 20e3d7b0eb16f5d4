"""The folder of real data where there is one, and a cache of each test's own."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

# A busy machine must not fail a property.
hypothesis.settings.register_profile("data", deadline=None)
hypothesis.settings.load_profile("data")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real images: SRPFL_DATA, or the one beside the repository."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    folder = Path(os.environ.get("SRPFL_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no real data: SRPFL_DATA is not set and {beside} does not exist")
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and no data folder but the one it names."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("SRPFL_CACHE", str(folder))
    monkeypatch.delenv("SRPFL_DATA", raising=False)
    return folder

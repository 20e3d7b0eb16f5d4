"""Tests import their helpers by name: the folder of this file is on the path."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))

# The suite tries the same cases everywhere, so that a failure is the last change's; `make faults`
# draws new ones.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.load_profile("suite")

# A job in the background is started with Ctrl-C ignored, and so would be all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data: SRPFL_DATA, or the one beside the repository."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("SRPFL_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no real data: SRPFL_DATA is not set and {beside} does not exist")
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    told = "how often each kind of fault is tried; make test-all takes 3, make faults 20"
    parser.addoption("--trials", type=int, default=1, metavar="N", help=told)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes ``trial``, a number, is made as often as there are trials."""
    if "trial" in metafunc.fixturenames:
        metafunc.parametrize("trial", range(metafunc.config.getoption("--trials")))


@pytest.fixture(scope="module")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for tests that write and remove thousands of files: on no disk, if that can be."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path_factory.mktemp("memory")
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


NUMBERS = itertools.count()


@pytest.fixture
def quick_path(in_memory: Path) -> Iterator[Path]:
    """A folder there for one test."""
    folder = in_memory / f"test-{next(NUMBERS)}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)

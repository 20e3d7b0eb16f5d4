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
import torch

from srpfl import engine

sys.path.insert(0, str(Path(__file__).parent))

CHOSEN = engine.chosen_device

# The suite tries the same cases everywhere, so that a failure is the last change's; `make faults`
# draws new ones.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.load_profile("suite")

# A job in the background is started with Ctrl-C ignored, and so would be all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# What no run needs. A module of tests that imports one of them is skipped where it is missing.
EXTRAS = ("brotli", "cryptography", "datasets", "dp_accounting", "flwr", "grpc", "httpx", "ray")
EXTRAS += ("transformers", "uvicorn", "yaml")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    text = str(report.longrepr)
    missing = [name for name in EXTRAS if f"No module named '{name}" in text]
    if report.outcome == "failed" and missing:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {missing[0]} is not installed")
    return report


# Tests of minutes; those of real processes mostly wait. Each of make's workers begins with its
# share of them: at the end, or all in one worker, they would have a core idle.
LONG = {"test_pretended.py", "test_processes.py", "test_mismatch.py", "test_faulty_line.py"}
LONG |= {"test_namespaces.py"}


@pytest.hookimpl(trylast=True)  # when what is not asked for is gone
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    long = [item for item in items if item.path.name in LONG]
    others = [item for item in items if item.path.name not in LONG]
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    left, items[:] = len(items), []
    for worker in range(workers):  # each gets as many of those that are left as the others will
        count = left // (workers - worker)
        begin = long[worker::workers]
        more = max(0, count - len(begin))
        items += [*begin, *others[:more]]
        others, left = others[more:], left - count
    items += others
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with a GPU, only those tests use it that name it: "auto" is the CPU, also in the
    processes that a test starts."""
    if torch.cuda.is_available():
        torch.cuda.init()  # this process has it then
        torch.cuda.device_count()  # kept from the first call on, which asks the environment
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        monkeypatch.setattr(
            engine, "chosen_device", lambda name: CHOSEN("cpu" if name == "auto" else name)
        )


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

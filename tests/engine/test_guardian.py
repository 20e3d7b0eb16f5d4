"""What was started under a guardian's eyes ends with who started it; nothing else does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="looks into /proc, and marks by a limit"
)
FILE = Path(__file__).parents[2] / "src" / "srpfl" / "engine" / "guardian.py"

# An orphan in a session of its own without an environment, and an innocent child. Both tell their
# numbers, a line in one piece; then who started them waits, with a forked copy that outlives it.
SCRIPT = f"""
import importlib.util, os, signal, subprocess, sys, time
for ignored in (signal.SIGHUP, signal.SIGINT):  # as a job in the background has them
    signal.signal(ignored, signal.SIG_DFL)
told = importlib.util.spec_from_file_location("guardian", {str(FILE)!r})
guardian = importlib.util.module_from_spec(told)
told.loader.exec_module(guardian)
tell = "import os, time; os.write(1, b'%d\\\\n' % os.getpid()); time.sleep(60)"
sleeper = [sys.executable, "-c", tell]
orphan = "import os, sys; os.fork() and os._exit(0); os.setsid(); os.execve(*sys.argv[1:2], " \\
    "sys.argv[1:], {{}})"
guarded = guardian.Guarded()
os.register_at_fork(after_in_child=guarded.process.stdin.close)
with guarded.marking():
    subprocess.run([sys.executable, "-c", orphan, *sleeper])
innocent = subprocess.Popen(sleeper)
if os.fork() == 0:
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(60)
if "close" in sys.argv:
    sys.stdin.readline()  # until all have told
    guarded.close()
    guarded.close()
    os.write(1, b"closed\\n")
time.sleep(60)
"""


def lives(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def soon(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 5
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGHUP, signal.SIGINT])
def test_orphans_end_with_who_started_them_and_others_stay(sign: signal.Signals) -> None:
    with started() as script:
        numbers = three(script)
        os.kill(script.pid, sign)
        only_the_marked_one_ends(script, numbers)


def test_also_when_the_guardian_is_closed() -> None:
    with started("close") as script:
        numbers = three(script)
        assert script.stdin is not None
        assert script.stdout is not None
        script.stdin.write("\n")
        script.stdin.flush()
        assert script.stdout.readline() == "closed\n"
        assert lives(script.pid)
        only_the_marked_one_ends(script, numbers)
        script.kill()


def started(*told: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, *told]
    pipe, none = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=none, text=True)


def three(script: subprocess.Popen[str]) -> list[int]:
    assert script.stdout is not None
    return [int(script.stdout.readline()) for _ in range(3)]


def only_the_marked_one_ends(script: subprocess.Popen[str], numbers: list[int]) -> None:
    """It is the one in a session of its own."""
    try:
        assert soon(lambda: sum(map(lives, numbers)) < 3)
        time.sleep(0.1)
        left = [number for number in numbers if lives(number)]
        assert len(left) == 2
        assert {os.getsid(number) for number in left} == {os.getsid(0)}
    finally:
        for number in filter(lives, numbers):
            os.kill(number, signal.SIGKILL)

"""Ends a Ray cluster of our own when we are no longer there to do it.

    python guardian.py MARK

waits until its standard input is closed, which the system does for any process that ends, however
it ends. Then it ends all processes with the mark: left alone, some of Ray's would seek each other
for a minute. It runs in a session of its own, so that what is sent to our process group does not
reach it, and as a file of its own that imports nothing of ours, so that it is there at once.

The mark is a limit that the system hands on to all that a process starts, and that has had no
effect since Linux 2.4.30 (RLIMIT_RSS in getrlimit(2)). Processes of Ray's overwrite their
environment, lose their parents and change their groups; this stays.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

LIMIT = resource.RLIMIT_RSS
SOFT = re.compile(r"^Max resident set +(\d+) ", re.MULTILINE)  # in /proc/PID/limits
MARKS = 1 << 61  # and as many above it: nobody sets such a limit, and no two clusters draw one
PATIENCE = 60.0  # seconds for processes to end that were killed; one that waits for a disk may not


class Guarded:
    """All that is started within :meth:`marking`, and what comes of it, ends with this process or
    when it is closed."""

    def __init__(self) -> None:
        self.mark = MARKS + secrets.randbelow(MARKS)
        self.process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(self.mark)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    @staticmethod
    def possible() -> bool:
        """Whether this is Linux, and nobody has lowered the limit for good."""
        _, hard = resource.getrlimit(LIMIT)
        return sys.platform.startswith("linux") and not 0 <= hard < 2 * MARKS

    @contextlib.contextmanager
    def marking(self) -> Iterator[None]:
        before = resource.getrlimit(LIMIT)
        resource.setrlimit(LIMIT, (self.mark, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(LIMIT, before)

    def close(self) -> None:
        """End them now. Once or more often: Ctrl-C can come in between."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def end_all(mark: int) -> None:
    """End them. What is ended could be about to start something: look until there is nothing."""
    deadline = time.monotonic() + PATIENCE
    while _end_those_there(mark) and time.monotonic() < deadline:
        time.sleep(0.02)


def _end_those_there(mark: int) -> int:
    """How many there were."""
    found = 0
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            handle = os.pidfd_open(int(entry.name))
            try:
                if _marked(entry, mark):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    found += 1
            finally:
                os.close(handle)
    return found


def _marked(entry: Path, mark: int) -> bool:
    told = SOFT.search((entry / "limits").read_text())
    if told is None or int(told[1]) != mark:
        return False
    return (entry / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end_all(int(sys.argv[1]))

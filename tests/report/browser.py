"""A real browser for the tests: Chromium without a window, steered over a pipe.

Only Chromium itself is needed; the protocol is JSON between zero bytes.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HOME = Path(sys.prefix) / "chromium"  # where get_browser.py puts one
AXE = Path(sys.prefix) / "axe.min.js"  # and axe-core
KEYS = {"ArrowLeft": 37, "ArrowRight": 39, "Escape": 27, "Tab": 9, "Enter": 13}
NAMES = ["chromium", "chromium-browser", "google-chrome", "chrome", "chrome-headless-shell"]


def chromium() -> str | None:
    """The browser's program: $CHROMIUM, or the first of the usual names, or our own copy. None on
    Windows, which gives no pipes to other programs."""
    if sys.platform == "win32":
        return None
    own = str(HOME / "run") if (HOME / "run").exists() else None
    places = [os.environ.get("CHROMIUM"), *map(shutil.which, NAMES), own]
    return next(filter(None, places), None)


class Page:
    """A tab, with all that it asked of the network and said to the console."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive, self._buffer, self._number = send, receive, b"", 0
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session: str | None = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    _session: str | None = None

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> float:
        """Open a page and return the seconds until it was drawn."""
        # The page before may still be asking for something, as the live one does every second.
        self._call("Page.navigate", url="about:blank")
        self.wait_for("document.readyState === 'complete' && location.href === 'about:blank'")
        self.requests.clear()
        self.complaints.clear()
        started = time.perf_counter()
        self._call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        return time.perf_counter() - started

    def evaluate(self, script: str) -> Any:
        answer = self._call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, condition: str, seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not self.evaluate(condition):
            assert time.monotonic() < end, f"never came true: {condition}"
            time.sleep(0.05)

    def hover(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        """Move the mouse over an element."""
        box = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            # The page hears of the scrolling with the next frame.
            "return new Promise(done => requestAnimationFrame(() => setTimeout(() => {"
            "const b = e.getBoundingClientRect(); done([b.x, b.y, b.width, b.height]) }))) })()"
        )
        x, y, width, height = box
        place = {"x": x + across * width, "y": y + down * height}
        self._call("Input.dispatchMouseEvent", type="mouseMoved", **place)

    def press(self, key: str) -> None:
        """Press a key of the keyboard, wherever the focus is."""
        for kind in ("rawKeyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                       windowsVirtualKeyCode=KEYS[key])  # fmt: skip

    def print(self, path: Path) -> None:
        """Print the page on paper, as PDF."""
        answer = self._call("Page.printToPDF", printBackground=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        for answer in self._messages():
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)
        raise AssertionError("the browser has gone")

    def _messages(self) -> Iterator[dict[str, Any]]:
        while True:
            while b"\0" in self._buffer:
                line, self._buffer = self._buffer.split(b"\0", 1)
                yield json.loads(line)
            more = os.read(self._receive, 1 << 20)
            if not more:
                return
            self._buffer += more

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif event.get("method") == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif event.get("method") == "Runtime.consoleAPICalled":
            if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(params["args"]))
        elif event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))


def table(page: Page, kind: str = "times") -> list[list[str]]:
    """The cells of the page's table of times, or of speed-ups ("gains")."""
    place = ("times", "gains").index(kind)
    rows = f"[...(document.querySelectorAll('#table table')[{place}]?.tBodies[0].rows ?? [])]"
    cells: list[list[str]] = page.evaluate(
        f"{rows}.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return [[_plain(cell) for cell in row] for row in cells]


def text(page: Page, id: str) -> str:
    """The words of an element."""
    return _plain(str(page.evaluate(f"document.getElementById('{id}').textContent")))


def _plain(words: str) -> str:
    return words.replace("\u00a0", " ")  # the page keeps numbers and units on one line


ARGUMENTS = [
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
]


@contextmanager
def browser(program: str) -> Iterator[Page]:
    """One tab in a browser of its own, gone afterwards."""
    (to_browser, send), (receive, from_browser) = _pipe(), _pipe()
    # Chromium expects the pipe at the descriptors 3 and 4.
    redirected = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            ["bash", "-c", redirected, "--", program, *ARGUMENTS, f"--user-data-dir={profile}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(to_browser, from_browser),
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            yield Page(send, receive)
        finally:
            process.terminate()
            process.wait(timeout=20)
            os.close(send)
            os.close(receive)


def _pipe() -> tuple[int, int]:
    """A pipe whose descriptors are out of the way of 3 and 4."""
    import fcntl  # not on Windows, where no browser is steered

    ends = os.pipe()
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return moved[0], moved[1]

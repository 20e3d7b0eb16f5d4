"""The report of runs in progress, served to a browser on this machine and to no one else."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import socket
import sys
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any
from urllib.parse import parse_qs, urlsplit

from srpfl.errors import ConfigError, RunFolderError, printable
from srpfl.report.content import content
from srpfl.report.find import runs_in
from srpfl.report.page import page
from srpfl.runs.folder import CONFIG, DIVERGED, EVALUATIONS, ROUNDS, RunFolder
from srpfl.runs.results import Results

HOST = "127.0.0.1"
CONNECTIONS = 32  # at a time
PATIENCE = 10.0  # seconds for a request to arrive, and again for its answer to be taken
log = logging.getLogger("srpfl")


class Server(ThreadingHTTPServer):
    """A thread for each connection, for so many of them and for so long."""

    daemon_threads = True

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self._places = BoundedSemaphore(CONNECTIONS)
        super().__init__((HOST, port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:  # the browser asks again
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Browsers go away in the middle of an answer; that is nobody's business."""
        error = sys.exception()
        if not isinstance(error, OSError):
            log.warning("a request was not answered: %s: %s", type(error).__name__, error)


class _Hasty(io.RawIOBase):
    """What comes from a socket until the time for it is over, however slowly it drips."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.end = connection, time.monotonic() + PATIENCE

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.connection.settimeout(left)
        count = self.connection.recv_into(buffer)
        self.connection.settimeout(PATIENCE)  # for the answer
        return count


def serve(folders: Sequence[Path], port: int = 0) -> ThreadingHTTPServer:
    """A server of the live report; its caller runs it. Port 0 takes any free one."""

    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE

        def setup(self) -> None:
            super().setup()
            self.rfile.close()
            self.rfile = io.BufferedReader(_Hasty(self.connection))

        def do_GET(self) -> None:
            # A page of some other site must not read the report by way of a name for this host.
            if self.headers.get("Host", "").rsplit(":", 1)[0] not in (HOST, "localhost"):
                return self._send(HTTPStatus.FORBIDDEN, "text/plain", "only for this machine")
            try:
                url = urlsplit(self.path)
            except ValueError:
                return self._send(HTTPStatus.BAD_REQUEST, "text/plain", "this is no address")
            if url.path == "/":
                return self._send(HTTPStatus.OK, "text/html", page(_content(folders)))
            if url.path == "/content.json":
                if parse_qs(url.query).get("version") == [version(folders)]:
                    return self._send(HTTPStatus.NO_CONTENT, "application/json", "")
                return self._send(HTTPStatus.OK, "application/json", json.dumps(_content(folders)))
            return self._send(HTTPStatus.NOT_FOUND, "text/plain", "there is no such page")

        def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
            body = text.encode(errors="backslashreplace")
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Cache-Control", "no-store")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """One line a second would drown the terminal."""

    try:
        return Server(port, Handler)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot serve on port {port}: {error}") from error


def version(folders: Sequence[Path]) -> str:
    """Changes whenever the records of a run do, or who is playing it."""
    stamp = hashlib.sha256()
    for folder in _runs(folders):
        for name in (CONFIG, ROUNDS, EVALUATIONS):
            stamp.update(f"{folder / name} {_size(folder / name)}\n".encode())
        # A process that was killed changes no file.
        diverged = _size(folder / DIVERGED) > 0
        stamp.update(f"{RunFolder(folder).in_use()} {diverged}\n".encode())
    return stamp.hexdigest()[:16]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # it is not there, or not for us to see
        return 0


def _content(folders: Sequence[Path]) -> dict[str, object]:
    # Before the records are read: what is written in between shows up with the next look.
    seen = version(folders)
    found = []
    for folder in _runs(folders):
        try:
            # The last line may be half written just now; that is no damage to speak of.
            run = Results.read(RunFolder(folder, say=lambda text: None))
        except (RunFolderError, RecursionError, OSError) as error:
            _leave_out(str(folder), error)
            continue
        found.append((run, str(folder)))
    try:
        shown = _of(found)
    except Exception:  # whatever a damaged or foreign folder leads to
        shown = _of([one for one in found if _can_be_shown(one)])
    return {**shown, "live": seen}


def _of(found: Sequence[tuple[Results, str]]) -> dict[str, Any]:
    shown = content([run for run, _ in found], folders=[place for _, place in found])
    json.dumps(shown, allow_nan=False)  # what a browser cannot read would blank the page
    return shown


def _can_be_shown(one: tuple[Results, str]) -> bool:
    """One bad run must not hide the others."""
    try:
        _of([one])
    except Exception as error:
        _leave_out(one[1], type(error).__name__)
        return False
    return True


def _leave_out(run: str, why: object) -> None:
    """Say so, once."""
    if run not in _told:
        _told.add(run)
        log.warning("%s cannot be shown (%s): it is left out", printable(run), why)


_told: set[str] = set()  # the runs of which it was said


def _runs(folders: Sequence[Path]) -> list[Path]:
    found = []
    for folder in folders:
        try:
            found += runs_in(folder)
        except OSError as error:  # it is not for us to see, or moved while we look
            _leave_out(str(folder), error.strerror)
    return found

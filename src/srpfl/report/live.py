"""The report of runs in progress, served to a browser on this machine and to no one else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from srpfl.errors import ConfigError, RunFolderError
from srpfl.folder import CONFIG, EVALUATIONS, ROUNDS, RunFolder
from srpfl.report.content import content
from srpfl.report.find import runs_in
from srpfl.report.page import page
from srpfl.run import Run

HOST = "127.0.0.1"


def serve(folders: Sequence[Path], port: int = 0) -> ThreadingHTTPServer:
    """A server of the live report; its caller runs it. Port 0 takes any free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A page of some other site must not read the report by way of a name for this host.
            if self.headers.get("Host", "").rsplit(":", 1)[0] not in (HOST, "localhost"):
                return self._send(HTTPStatus.FORBIDDEN, "text/plain", "only for this machine")
            url = urlsplit(self.path)
            if url.path == "/":
                return self._send(HTTPStatus.OK, "text/html", page(_content(folders)))
            if url.path == "/content.json":
                if parse_qs(url.query).get("version") == [version(folders)]:
                    return self._send(HTTPStatus.NO_CONTENT, "application/json", "")
                return self._send(HTTPStatus.OK, "application/json", json.dumps(_content(folders)))
            return self._send(HTTPStatus.NOT_FOUND, "text/plain", "there is no such page")

        def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Cache-Control", "no-store")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """One line a second would drown the terminal."""

    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot serve on port {port}: {error}") from error


def version(folders: Sequence[Path]) -> str:
    """Changes whenever the records of a run do."""
    stamp = hashlib.sha256()
    for folder in _runs(folders):
        for name in (CONFIG, ROUNDS, EVALUATIONS):
            path = folder / name
            state = path.stat() if path.exists() else None
            stamp.update(f"{path} {state.st_size if state else 0}\n".encode())
    return stamp.hexdigest()[:16]


def _content(folders: Sequence[Path]) -> dict[str, object]:
    # Before the records are read: what is written in between shows up with the next look.
    seen = version(folders)
    found = []
    for folder in _runs(folders):
        try:
            # The last line may be half written just now; that is no damage to speak of.
            records = RunFolder(folder, say=lambda text: None)
            run = Run(
                records.config(), records.rounds(), records.evaluations(), counts=records.counts()
            )
        except RunFolderError:
            continue
        found.append((run, str(folder)))
    return {
        **content([run for run, _ in found], folders=[place for _, place in found]),
        "live": seen,
    }


def _runs(folders: Sequence[Path]) -> list[Path]:
    return [run for folder in folders for run in runs_in(folder)]

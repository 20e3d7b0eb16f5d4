"""A deployment's numbers for Prometheus, from its run folder."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from srpfl.errors import SrpflError
from srpfl.flower.events import KINDS
from srpfl.flower.status import Status, read_status, trouble
from srpfl.runs.files import ROUNDS

QUANTILES = (0.5, 0.9, 0.99)
RECENT = 500  # rounds over which quantiles are taken
LEAST = 1.0  # seconds between two looks at the folder, no matter who asks


@dataclass
class Waits:
    """How long rounds waited, read on from where one stopped reading."""

    path: Path
    place: int = 0
    durations: list[float] = field(default_factory=list)
    total: float = 0.0
    rounds: int = 0
    n: int = 0
    asked: int = 0
    late: int = 0

    def read(self) -> None:
        if not self.path.exists():
            return
        if self.path.stat().st_size < self.place:  # a restarted server has cut it
            self.__init__(self.path)  # type: ignore[misc]
        with self.path.open("rb") as file:
            file.seek(self.place)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self.place += len(line)
                self._add(line)

    def _add(self, line: bytes) -> None:
        try:
            record = json.loads(line)
            duration, n = float(record["duration"]), len(record["participants"])
        except (ValueError, KeyError, TypeError):
            return  # `srpfl doctor` says what is wrong with it
        self.durations = [*self.durations[1 - RECENT :], duration]
        self.total += duration
        self.rounds += 1
        self.n, self.asked = n, int(record.get("asked", n))
        self.late += len(record.get("late", []))


def text(status: Status, waits: Waits) -> str:
    """All numbers in Prometheus's text format."""
    ordered = sorted(waits.durations)
    # A series that is there from the first scrape: Prometheus sees no increase in one that begins.
    events = {**dict.fromkeys(KINDS, 0), **status.events}
    late = waits.late + events["late"]
    lines = [
        *_one("up", "gauge", "whether the server is well", int(trouble(status) is None)),
        *_one("rounds_total", "counter", "rounds played", waits.rounds),
        *_one("rounds_planned", "gauge", "rounds to be played", status.rounds),
        *_one("n", "gauge", "answers that the last round counted", waits.n),
        *_one("asked", "gauge", "clients that the last round asked", waits.asked),
        *_one("clients_present", "gauge", "clients whose nodes are online", status.present),
        *_one("clients_idle", "gauge", "clients that could be asked", status.idle),
        *_one("received_bytes_total", "counter", "bytes of answers", status.bytes_received),
        *_one("parts_kept_total", "counter", "personal parts kept by clients", status.parts_kept),
        *_one("late_total", "counter", "answers that came too late to count", late),
        *_one("refused_total", "counter", "answers and nodes refused", events["refused"]),
        *_one("status_timestamp_seconds", "gauge", "when the server last said so", status.at),
        "# HELP srpfl_round_seconds how long rounds waited for answers",
        "# TYPE srpfl_round_seconds summary",
        *(
            f'srpfl_round_seconds{{quantile="{q}"}} {ordered[math.ceil(q * len(ordered)) - 1]}'
            for q in QUANTILES
            if ordered
        ),
        f"srpfl_round_seconds_sum {waits.total}",
        f"srpfl_round_seconds_count {waits.rounds}",
        "# HELP srpfl_events_total what happened beside the rounds",
        "# TYPE srpfl_events_total counter",
        *(f'srpfl_events_total{{what="{what}"}} {count}' for what, count in sorted(events.items())),
    ]
    return "\n".join(lines) + "\n"


def _one(name: str, kind: str, what: str, value: float) -> Iterable[str]:
    return (f"# HELP srpfl_{name} {what}", f"# TYPE srpfl_{name} {kind}", f"srpfl_{name} {value}")


class Exporter(ThreadingHTTPServer):
    """Serves /metrics and /health of one run folder, to this machine unless said otherwise."""

    daemon_threads = True

    def __init__(self, folder: Path, host: str, port: int) -> None:
        self.folder = folder
        self._waits = Waits(folder / ROUNDS)
        self._said: tuple[int, str] = (503, "")
        self._looked = 0.0
        super().__init__((host, port), _Handler)

    def said(self, path: str) -> tuple[int, str]:
        """Status and text for a path."""
        if path not in ("/metrics", "/health"):
            return 404, "there is /metrics, and /health\n"
        try:
            status = read_status(self.folder)
        except SrpflError as error:
            return 503, f"{error}\n"
        if path == "/health":
            wrong = trouble(status)
            return (503, f"{wrong}\n") if wrong else (200, "well\n")
        if time.monotonic() - self._looked > LEAST:
            self._looked = time.monotonic()
            self._waits.read()
            self._said = 200, text(status, self._waits)
        return self._said


class _Handler(BaseHTTPRequestHandler):
    server: Exporter
    timeout = 10

    def do_GET(self) -> None:
        code, said = self.server.said(self.path)
        body = said.encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """A scrape is nothing to tell of."""

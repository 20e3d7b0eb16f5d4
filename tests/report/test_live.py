"""`srpfl watch`: the report follows a run and outlives it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import made_up
import pytest
from browser import Page

import srpfl
from srpfl.errors import DivergedError
from srpfl.report import live
from srpfl.report.live import serve
from srpfl.report.status import status
from srpfl.runs.folder import DIVERGED, RunFolder


@contextmanager
def served(folder: Path) -> Iterator[str]:
    server = serve([folder])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_page_follows_a_run_from_before_its_start_to_after_its_end(
    page: Page, tmp_path: Path
) -> None:
    folder = RunFolder(tmp_path / "run")
    whole = made_up.run(rounds=20)
    badge = "document.getElementById('live').textContent"
    points = (
        "(document.querySelector('#curves path.curve').getAttribute('d').match(/L/g) || []).length"
    )
    with served(folder.path) as url:
        page.open(url)
        assert page.evaluate(badge) == "waiting for a run"
        made_up.keep(whole, folder, upto=5)
        folder.claim()  # somebody is playing it
        page.wait_for(f"{badge}.startsWith('running, last round')")
        assert page.evaluate(points) == 4
        page.evaluate("document.querySelectorAll('#costs button')[1].click()")
        records = folder.path / "rounds.jsonl"
        before = records.read_text()
        records.write_text(before + '{"round": 6, "sta')  # half a line, as a reader may find it
        page.wait_for("CONTENT.runs[0].rounds.length === 5")
        records.write_text(before)
        folder.release()  # as a kill does too
        page.wait_for(f"{badge}.startsWith('stopped? last round')")
        made_up.keep(whole, folder, upto=20)
        page.wait_for(f"{badge} === 'finished'")
        assert page.evaluate(points) == 19
        assert page.evaluate("view.cost") == 10  # what the reader chose stays chosen
    page.wait_for(f"{badge}.includes('has stopped')")
    assert page.evaluate(points) == 19
    assert {request.split("?")[0] for request in page.requests} <= {url, f"{url}content.json"}


def test_a_run_that_diverged_says_why(page: Page, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    made_up.keep(made_up.run(rounds=20), folder, upto=7)
    folder.note_divergence("training diverged: client 3 has loss nan in round 8")
    with served(folder.path) as url:
        page.open(url)
        page.wait_for("document.getElementById('live').textContent === 'diverged'")
        said = page.evaluate("document.getElementById('states').textContent")
        assert said == (
            "srpfl ended after 7 of 20 rounds. Training diverged: client 3 has loss nan in round 8."
        )
        assert "7/20 diverged" in page.evaluate("document.getElementById('legend').textContent")


def test_training_that_diverges_leaves_a_note_which_report_and_watch_show(tmp_path: Path) -> None:
    options = {
        "data": srpfl.data.load("digits", clients=4),
        "model": srpfl.models.MLP(64, (8,), classes=10),
        "out": tmp_path / "run",
    }
    wild = srpfl.FedAvg(rule=srpfl.SGD(lr=1e30))
    for again in (False, True):
        with pytest.raises(DivergedError) as error:
            srpfl.simulate(algorithm=wild, rounds=3, resume=again, **options)
        assert status(srpfl.Run.load(tmp_path / "run"), tmp_path / "run")["why"] == str(error.value)
    assert (tmp_path / "run" / DIVERGED).exists()


def test_it_is_for_this_machine_alone(tmp_path: Path) -> None:
    with served(tmp_path) as url:
        assert url.startswith("http://127.0.0.1:")
        foreign = urllib.request.Request(url, headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(foreign, timeout=10)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}../../etc/passwd", timeout=10)


@pytest.mark.slow
def test_the_command_watches_a_run_that_really_trains(page: Page, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from srpfl.cli import main; main()"]
    options = ["--data", "digits", "--clients", "8", "--rounds", "12", "--evaluate-every", "1"]
    watch = subprocess.Popen(
        [*command, "watch", "run", "--port", "0"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert watch.stdout is not None
    run = None
    try:
        found = re.search(r"http://127\.0\.0\.1:\d+/", watch.stdout.readline())
        assert found
        page.open(found[0])
        run = subprocess.Popen([*command, "run", *options, "--out", "run", "--quiet"], cwd=tmp_path)
        page.wait_for("CONTENT.runs.length && CONTENT.runs[0].rounds.length > 0", seconds=120)
        page.wait_for("CONTENT.runs[0].status.state === 'finished'", seconds=120)
        assert run.wait(timeout=60) == 0
        assert page.evaluate("CONTENT.runs[0].rounds.length") == 12
        assert watch.poll() is None
    finally:
        for process in filter(None, (run, watch)):
            process.terminate()
            process.wait(timeout=20)
        watch.stdout.close()


def shown(url: str) -> list[str]:
    """The names of the runs that a page is told."""
    with urllib.request.urlopen(url + "content.json", timeout=10) as answer:
        return [run["name"] for run in json.load(answer, parse_constant=pytest.fail)["runs"]]


ODD = [
    ("rounds", None),
    ("rounds", "many"),
    ("data", None),
    ("data", {"clients": -1}),
    ("data", {"clients": 10**15}),
    ("options", {"rounds": {"a": [[]]}}),
    ("task", {"metric": 5}),
    ("headline", "\ud800"),
    ("name", ["x"]),
    ("communication", "free"),
    ("stop_at", "soon"),
]


def test_one_odd_run_does_not_hide_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made_up.keep(made_up.run(name="fedrep", rounds=3), RunFolder(tmp_path / "fine"), upto=3)
    for number, (key, value) in enumerate(ODD):
        folder = tmp_path / f"odd{number}"
        made_up.keep(made_up.run(name="odd", rounds=3), RunFolder(folder), upto=3)
        config = json.loads((folder / "config.json").read_text())
        config.pop("sum", None)
        config = {**config, key: value} if value is not None else {**config}
        if value is None:
            del config[key]
        (folder / "config.json").write_text(json.dumps(config))
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "config.json").write_text("[" * 100_000)
    with served(tmp_path) as url:
        assert "fedrep" in shown(url)
        assert "fedrep" in shown(url)
        told = [text for text in caplog.messages if str(tmp_path / "deep") in text]
        assert len(told) == 1
        assert "nested too deeply" in told[0]
        for number, (key, _) in enumerate(ODD):
            with served(tmp_path / f"odd{number}") as other:
                assert len(shown(other)) <= 1, key


def test_what_cannot_be_looked_at_hides_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("seen", "hidden"):
        made_up.keep(made_up.run(name=name, rounds=3), RunFolder(tmp_path / name), upto=3)
    known = Path.stat

    def stat(path: Path, **choices: bool) -> object:
        if path.parent == tmp_path / "hidden":
            raise PermissionError(13, "Permission denied")
        return known(path, **choices)

    monkeypatch.setattr(Path, "stat", stat)
    with served(tmp_path) as url:
        assert "seen" in shown(url)
    with served(tmp_path / ("x" * 300)) as url:  # no name of a folder
        assert shown(url) == []


def test_those_who_ask_slowly_take_few_threads_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PATIENCE", 0.5)
    monkeypatch.setattr(live, "CONNECTIONS", 4)
    made_up.keep(made_up.run(rounds=3), RunFolder(tmp_path / "run"), upto=3)
    before = threading.active_count()
    with served(tmp_path) as url:
        port = int(url.rstrip("/").rpartition(":")[2])
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(3 * live.CONNECTIONS)]
        for connection in slow:
            with_one_byte(connection)
        assert threading.active_count() - before <= live.CONNECTIONS + 1
        deadline = time.monotonic() + 10
        names: list[str] = []
        while not names and time.monotonic() < deadline:
            for connection in slow:
                with_one_byte(connection)  # so that it is never quite silent
            try:
                names = shown(url)
            except OSError:
                time.sleep(0.1)
        assert names == ["srpfl"]
        for connection in slow:
            connection.close()


def with_one_byte(connection: socket.socket) -> None:
    try:
        connection.send(b"G")
    except OSError:
        return

"""`srpfl watch`: the report follows a run and outlives it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import made_up
import pytest
from browser import Page

from srpfl.folder import RunFolder
from srpfl.report.live import serve


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
    points = "(document.querySelector('path.curve').getAttribute('d').match(/L/g) || []).length"
    with served(folder.path) as url:
        page.open(url)
        assert page.evaluate(badge) == "waiting for a run"
        made_up.keep(whole, folder, upto=5)
        page.wait_for(f"{badge} === 'running'")
        assert page.evaluate(points) == 4
        page.evaluate("document.querySelectorAll('#costs button')[1].click()")
        records = folder.path / "rounds.jsonl"
        before = records.read_text()
        records.write_text(before + '{"round": 6, "sta')  # half a line, as a reader may find it
        page.wait_for("CONTENT.runs[0].rounds.length === 5")
        records.write_text(before)
        made_up.keep(whole, folder, upto=20)
        page.wait_for(f"{badge} === 'finished'")
        assert page.evaluate(points) == 19
        assert page.evaluate("view.cost") == 10  # what the reader chose stays chosen
    page.wait_for(f"{badge}.includes('has stopped')")
    assert page.evaluate(points) == 19
    assert {request.split("?")[0] for request in page.requests} <= {url, f"{url}content.json"}


def test_it_is_for_this_machine_alone(tmp_path: Path) -> None:
    with served(tmp_path) as url:
        assert url.startswith("http://127.0.0.1:")
        foreign = urllib.request.Request(url, headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(foreign, timeout=10)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}../../etc/passwd", timeout=10)


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
        page.wait_for("CONTENT.runs[0].over", seconds=120)
        assert run.wait(timeout=60) == 0
        assert page.evaluate("CONTENT.runs[0].rounds.length") == 12
        assert watch.poll() is None
    finally:
        for process in filter(None, (run, watch)):
            process.terminate()
            process.wait(timeout=20)
        watch.stdout.close()

"""What an operator sees of a deployment: status, health, metrics, logs."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import srpfl
from flower.federation import Federation
from srpfl.cli import app
from srpfl.errors import ConfigError, RunFolderError
from srpfl.flower.metrics import Exporter
from srpfl.flower.status import FILE, Status, read_status, trouble


def call(*arguments: str) -> tuple[int, str, BaseException | None]:
    result = CliRunner().invoke(app, ["deploy", *arguments])
    return result.exit_code, result.output, result.exception


@pytest.fixture
def played(tmp_path: Path) -> Path:
    federation = Federation(tmp_path, [1, 1, 1], participation=srpfl.FirstN(n=2), rounds=4)
    federation.serve(about={"flower_run": "77", "run_config": {"rounds": 4}})
    return tmp_path / "run"


def put(folder: Path, **changes: object) -> None:
    found = asdict(read_status(folder))
    (folder / FILE).write_text(json.dumps({**found, **changes}))


def test_the_status_says_what_came_of_a_run(played: Path) -> None:
    code, said, _ = call("status", str(played), "--json")
    found = json.loads(said)
    assert code == 0
    assert (found["state"], found["done"], found["rounds"], found["present"]) == ("over", 4, 4, 3)
    assert found["events"]["joined"] == 3
    assert found["parts_kept"] >= 3
    assert "4 of 4" in call("status", str(played))[1]


def test_a_failed_run_says_why(tmp_path: Path) -> None:
    from srpfl.loop.rounds import NoAnswerError

    federation = Federation(tmp_path, [1, 1, 1])
    for client in range(3):
        federation.of(client).config["work"] = "many"
    with pytest.raises(NoAnswerError):
        federation.serve()
    assert read_status(tmp_path / "run").state == "failed"
    code, said, _ = call("health", str(tmp_path / "run"))
    assert code == 1
    assert "no client answered" in said


def test_health_notices_a_server_that_is_gone(played: Path) -> None:
    assert call("health", str(played))[0] == 0
    put(played, state="running", at=0.0)
    code, said, _ = call("health", str(played))
    assert code == 1
    assert "start the run again" in said


def test_no_folder_of_a_deployment_is_said_so(tmp_path: Path) -> None:
    assert isinstance(call("status", str(tmp_path))[2], RunFolderError)


def test_what_is_at_work_is_not_resumed(played: Path) -> None:
    import time

    put(played, state="running", at=time.time())
    error = call("resume", str(played))[2]
    assert isinstance(error, ConfigError)
    assert "is at work" in str(error)


def test_prometheus_reads_the_numbers(played: Path) -> None:
    with Exporter(played, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_address[1]}"
        with urllib.request.urlopen(f"{base}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        with urllib.request.urlopen(f"{base}/health", timeout=10) as answer:
            assert answer.read() == b"well\n"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{base}/run.json", timeout=10)
        server.shutdown()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    assert values["srpfl_rounds_total"] == "4"
    assert values["srpfl_n"] == "2"
    assert values['srpfl_events_total{what="joined"}'] == "3"
    assert float(values['srpfl_round_seconds{quantile="0.5"}']) > 0
    assert values["srpfl_round_seconds_count"] == "4"


def test_logs_are_json_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SRPFL_LOG", "json")
    monkeypatch.setenv("SRPFL_LOG_LEVEL", "warning")
    federation = Federation(tmp_path, [1, 1, 1], participation=srpfl.Everyone())
    federation.of(1).config["work"] = "many"
    federation.serve(rounds=1)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["level"], line["kind"], line["client"]) for line in lines] == [
        ("warning", "failed", 1)
    ]


def test_trouble_is_one_sentence_each() -> None:
    well = Status(at=0.0, state="over")
    assert trouble(well) is None
    assert "failed: out of memory" in str(
        trouble(replace(well, state="failed", why="out of memory"))
    )

"""What an operator sees of a deployment: status, health, metrics, logs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import srpfl
from flower.federation import Federation, during
from srpfl.cli import app
from srpfl.errors import ConfigError, RunFolderError
from srpfl.flower.events import say
from srpfl.flower.metrics import Exporter, Waits, text
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


def test_a_probe_costs_little(played: Path) -> None:
    """It asks every few seconds: what takes seconds to import is not imported for it."""
    code = (
        "import sys; from srpfl.cli import app;"
        f"app(['deploy', 'health', {str(played)!r}], standalone_mode=False);"
        "print(sorted({'torch', 'flwr', 'numpy'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.splitlines() == ["well: 4 of 4 rounds, 3 clients, over", "[]"]


def test_a_run_that_was_stopped_has_not_failed(tmp_path: Path) -> None:
    """Flower ends the server app of a run that is stopped."""
    federation = Federation(tmp_path, [1, 1, 1])

    def stop() -> None:
        raise SystemExit(0)

    during(stop, 1.5, federation)
    with pytest.raises(SystemExit):
        federation.serve()
    code, said, _ = call("health", str(tmp_path / "run"))
    assert code == 1
    assert "was stopped after 1 of 3 rounds: srpfl deploy resume" in said
    again = Federation(tmp_path, [1, 1, 1])
    again.serve()
    # What happens then belongs to the round that is played then.
    assert [event["round"] for event in again.events("joined")] == [1, 1, 1, 2, 2, 2]
    # Counts never fall: Prometheus would take what is left for new.
    assert read_status(tmp_path / "run").events["joined"] == 6


def test_no_folder_of_a_deployment_is_said_so(tmp_path: Path) -> None:
    assert isinstance(call("status", str(tmp_path))[2], RunFolderError)


def test_what_is_at_work_is_not_resumed(played: Path) -> None:
    import time

    put(played, state="running", at=time.time())
    error = call("resume", str(played))[2]
    assert isinstance(error, ConfigError)
    assert "is at work" in str(error)


def test_what_was_resumed_counts_as_at_work_before_its_server_says_so(
    played: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower takes seconds to start a server app: until then nobody starts a second one."""
    called: list[tuple[str, ...]] = []
    monkeypatch.setattr("srpfl.cli.deploy_operate._flwr", lambda *words: called.append(words))
    put(played, state="stopped", done=2)
    assert call("resume", str(played))[0] == 0
    assert call("health", str(played))[0] == 0
    assert isinstance(call("resume", str(played))[2], ConfigError)
    assert [words[0] for words in called] == ["run"]
    assert read_status(played).run_config == {"rounds": 4}


def test_settings_of_any_kind_are_the_same_when_a_run_goes_on(
    played: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flwr.common.config import parse_config_args

    settings: dict[str, object] = {"rounds": 4, "lr": 1e-7, "most": math.inf, "fine": True}
    settings |= {
        "name": "say \"hi\", 'you'",
        "path": "C:\\x=1 b=2",
        "text": "ü😀\n\t",
        "a.b": "",
    }
    read: list[object] = []

    def run(*words: str) -> None:
        read.append(parse_config_args([words[words.index("--run-config") + 1]]))

    monkeypatch.setattr("srpfl.cli.deploy_operate._flwr", run)
    put(played, state="stopped", run_config=settings)
    assert call("resume", str(played))[0] == 0
    assert read == [settings]


def test_a_server_that_was_quick_has_the_last_word(
    played: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(played, state="stopped", done=2)

    def quick(*words: str) -> None:
        put(played, state="over", done=4)

    monkeypatch.setattr("srpfl.cli.deploy_operate._flwr", quick)
    assert call("resume", str(played))[0] == 0
    assert read_status(played).state == "over"


@pytest.mark.parametrize("says_so", [True, False])
def test_a_run_that_was_stopped_is_stopped_whatever_its_server_still_said(
    played: Path, monkeypatch: pytest.MonkeyPatch, says_so: bool
) -> None:
    """On a busy machine Flower ends the server before it has had its last word."""
    put(played, state="running", at=time.time(), done=2)

    def stop(*words: str) -> None:
        assert words == ("stop", "77")
        if says_so:
            put(played, state="stopped", done=3)

    monkeypatch.setattr("srpfl.cli.deploy_operate._flwr", stop)
    monkeypatch.setattr("srpfl.flower.status.LAST", 0.3)
    code, said, _ = call("stop", str(played))
    assert code == 0
    found, done = read_status(played), 3 if says_so else 2
    assert (found.state, found.done) == ("stopped", done)
    assert f"stopped after {done} of 4 rounds" in said
    assert "srpfl deploy resume" in call("health", str(played))[1]


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
    assert values['srpfl_events_total{what="refused"}'] == values["srpfl_refused_total"] == "0"


def test_late_answers_are_counted_whenever_they_came(tmp_path: Path) -> None:
    """With the round's last one, or in a later round."""
    lines = [{"duration": s, "participants": [0], "late": [1]} for s in (1.0, 3.0)]
    (tmp_path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    waits = Waits(tmp_path / "rounds.jsonl")
    waits.read()
    said = text(Status(at=0.0, state="over", events={"late": 5}), waits)
    assert "srpfl_late_total 7\n" in said
    assert 'srpfl_round_seconds{quantile="0.5"} 1.0\n' in said
    assert 'srpfl_round_seconds{quantile="0.9"} 3.0\n' in said


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


def test_the_log_goes_to_a_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower shows what a server app prints to nobody but those who ask it."""
    monkeypatch.setenv("SRPFL_LOG", "json")
    monkeypatch.setenv("SRPFL_LOG_FILE", str(tmp_path / "log.jsonl"))
    say("one", kind="note")
    say("two", level="warning")
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(line["text"], line["level"]) for line in lines] == [
        ("one", "info"),
        ("two", "warning"),
    ]
    monkeypatch.setenv("SRPFL_LOG_FILE", str(tmp_path / "nowhere" / "log"))
    say("a run does not end because of it")


def test_trouble_is_one_sentence_each() -> None:
    well = Status(at=0.0, state="over")
    assert trouble(well) is None
    alone = replace(well, at=time.time(), state="running")
    assert "no client is there: start nodes" in str(trouble(alone))
    # Those were perhaps refused before the server was started again.
    assert "start nodes; some were refused" in str(trouble(replace(alone, events={"refused": 2})))
    assert "failed: out of memory" in str(
        trouble(replace(well, state="failed", why="out of memory"))
    )

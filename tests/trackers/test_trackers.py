"""Every tracker's files, read back with that tracker's own package."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import srpfl
import tiny
from srpfl.errors import ConfigError
from srpfl.runs.records import EvaluationRecord
from srpfl.trackers import MLflow, TensorBoard, Tracker, WandB, metrics_of, replay, tracker


@pytest.fixture(scope="module")
def run() -> srpfl.Run:
    return tiny.simulate(evaluate_every=2, clock=srpfl.FixedExponential(communication=10))


def expected(run: srpfl.Run) -> dict[str, dict[int, float]]:
    """Every number of the run, by name and round."""
    found: dict[str, dict[int, float]] = {}
    for record in (*run.rounds, *run.evaluations):
        for name, value in metrics_of(record, run.communication).items():
            found.setdefault(name, {})[record.round] = value
    assert found["time"][4] == run.time()
    assert set(found["accuracy/personalised"]) == {2, 4}
    return found


def test_the_names_are_the_metrics_and_the_worst_client_is_the_worst() -> None:
    values, weights = [3.0, 9.0, 0.0, 20.0], [5, 5, 5, 0]
    falls = EvaluationRecord(2, "local", 1.0, 4.0, values, weights, "rmse", False)
    assert metrics_of(falls, 0.0) == {"rmse/local": 4.0, "rmse/local/worst client": 9.0}
    rises = EvaluationRecord(2, "local", 1.0, 4.0, values, [5, 5, 0, 5], "r2", True)
    assert metrics_of(rises, 0.0) == {"r2/local": 4.0, "r2/local/worst client": 3.0}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*noload.*:DeprecationWarning")
def test_a_metric_may_have_any_name(run: srpfl.Run, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    named = [replace(record, metric="error (%), R²") for record in run.evaluations]
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    replay(replace(run, evaluations=named), MLflow(uri=uri), TensorBoard(tmp_path))
    client = MlflowClient(tracking_uri=uri)
    (kept,) = client.search_runs([client.get_experiment_by_name("srpfl").experiment_id])
    assert kept.data.metrics["error ____ R²/local"] == named[-1].value


def test_tensorboard(run: srpfl.Run, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    replay(run, TensorBoard(tmp_path))
    everything = {"histograms": 0, "scalars": 0, "tensors": 0}
    events = EventAccumulator(str(tmp_path / "fedrep-seed0"), size_guidance=everything)
    events.Reload()
    wanted = expected(run)
    assert set(events.Tags()["scalars"]) == {name.replace(" ", "_") for name in wanted}
    for name, values in wanted.items():
        seen = {event.step: event.value for event in events.Scalars(name.replace(" ", "_"))}
        assert seen == pytest.approx(values, rel=1e-6)  # event files hold 32-bit floats
    times = {event.step: event.wall_time for event in events.Scalars("accuracy/personalised")}
    assert times == {point.round: point.time for point in run.accuracy}  # not when it was written
    assert [h.step for h in events.Histograms("accuracy/local/clients")] == [2, 4]
    told = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    assert b"participation.kind" in told
    text = events.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()
    assert json.loads(text.strip("`").removeprefix("json")) == json.loads(json.dumps(run.config))


@pytest.mark.filterwarnings("ignore:.*noload.*:DeprecationWarning")  # mlflow's use of sqlalchemy
def test_mlflow(run: srpfl.Run, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    replay(run, MLflow("study", uri=uri))
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("study")
    assert experiment is not None
    (kept,) = client.search_runs([experiment.experiment_id])
    assert (kept.info.run_name, kept.info.status) == ("fedrep-seed0", "FINISHED")
    assert kept.data.params["participation.kind"] == "Doubling"
    assert kept.data.params["algorithm.rule.lr"] == "0.01"
    for name, values in expected(run).items():
        history = client.get_metric_history(kept.info.run_id, name)
        assert {metric.step: metric.value for metric in history} == values
        if name == "accuracy/local":
            assert {m.timestamp for m in history} == {int(1000 * p.time) for p in run.accuracy}
    halves = client.get_metric_history(kept.info.run_id, "accuracy/local/clients/p50")
    assert len(halves) == 2


@pytest.mark.slow
def test_wandb_offline(run: srpfl.Run, tmp_path: Path) -> None:
    import wandb

    replay(run, WandB("study", folder=tmp_path))
    wandb.teardown()  # its service may still be writing
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    seen: dict[str, dict[int, float]] = {}
    config: dict[str, Any] = {}
    records = wandb_records(file)
    for record in records:
        if record.WhichOneof("record_type") == "run":
            config = {item.key: json.loads(item.value_json) for item in record.run.config.update}
        values = {(item.key or item.nested_key[0]): json.loads(item.value_json)
                  for item in record.history.item}  # fmt: skip
        for name, value in values.items():
            seen.setdefault(name, {})[values["_step"]] = value
    wanted = expected(run)
    assert {name: seen[name] for name in wanted} == wanted
    assert set(seen["accuracy/local/clients"]) == {2, 4}
    assert any(record.metric.step_metric == "time" for record in records)
    assert config["participation"]["kind"] == "Doubling"


def wandb_records(file: Path) -> list[Any]:
    """The package's own messages, out of the log file that it keeps them in.

    The log is LevelDB's: blocks of 32 KiB, records in pieces with a checksum (4 bytes), a length
    (2) and a kind (1: whole, 2: first, 3: middle, 4: last). The first seven bytes are W&B's mark.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, piece, records = file.read_bytes(), 7, b"", []
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
        length = int.from_bytes(data[place + 4 : place + 6], "little")
        kind = data[place + 6]
        piece += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            records.append(Record.FromString(piece))
            piece = b""
    return records


class Broken(Tracker):
    """Fails at every step."""

    package, extra = "json", "nothing"

    def start(self, name: str, done: int) -> None:
        raise OSError("the disk is full")


def test_a_tracker_never_influences_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.simulate(out=tmp_path / "alone")
    tiny.simulate(out=tmp_path / "tracked", watchers=[TensorBoard(tmp_path / "tb"), Broken()])
    for name in ("config.json", "partition.json", "rounds.jsonl", "evaluations.jsonl"):
        alone, tracked = (tmp_path / run / name for run in ("alone", "tracked"))
        assert alone.read_bytes() == tracked.read_bytes()
    said = capsys.readouterr().err
    assert said.count("Broken failed") == 1
    assert "the disk is full" in said


def test_a_resumed_run_leaves_no_trace_of_the_rounds_that_it_repeats(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    choices = {"out": tmp_path / "run", "checkpoint_every": 3, "rounds": 5}

    class Stop(srpfl.Watcher):
        def round(self, record: object) -> None:
            if record.round == 5:  # type: ignore[attr-defined]
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny.simulate(**choices, watchers=[TensorBoard(tmp_path / "tb"), Stop()])
    tiny.simulate(**choices, resume=True, watchers=[TensorBoard(tmp_path / "tb")])
    events = EventAccumulator(str(tmp_path / "tb" / "fedrep-seed0"))
    events.Reload()
    assert [event.step for event in events.Scalars("time")] == [1, 2, 3, 4, 5]


def test_a_missing_package_is_said_before_the_run() -> None:
    class Absent(Broken):
        package, extra = "no_such_package", "mlflow"

    with pytest.raises(ConfigError, match=r"pip install 'srpfl\[mlflow\]'"):
        Absent()


def test_a_folder_that_cannot_be_made_is_said_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot write to .*file"):
        tracker("mlflow", tmp_path / "file")

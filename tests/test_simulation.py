"""Whole runs: repeatable, resumable, paired."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

import srpfl
import tiny
from srpfl.core.initial import initial_model
from srpfl.core.split import partition, state_of
from srpfl.engine.base import Job
from srpfl.engine.loop import LoopEngine
from srpfl.errors import ConfigError, DataError, DivergedError, RunFolderError

RECORDS = ("config.json", "rounds.jsonl", "evaluations.jsonl")


def records(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in RECORDS}


def test_the_same_run_twice_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        tiny.simulate(out=tmp_path / name)
    assert records(tmp_path / "one") == records(tmp_path / "two")


def test_neither_an_evaluation_nor_another_c_changes_what_is_trained() -> None:
    plain = tiny.simulate(evaluate_every=0)
    watched = tiny.simulate(evaluate_every=1, evaluations=["personalised", "local"])
    costly = tiny.simulate(clock=srpfl.FixedExponential(communication=10.0))
    assert plain.rounds == watched.rounds == costly.rounds
    assert tiny.same(plain.state.shared, watched.state.shared)
    assert tiny.same(plain.state.shared, costly.state.shared)
    assert costly.time(0) == plain.time()
    assert costly.time() == pytest.approx(plain.time() + 10 * 4)


def test_the_same_seed_gives_every_method_the_same_start() -> None:
    algorithms = [srpfl.FedAvg(), srpfl.FedRep(), srpfl.LGFedAvg(), srpfl.HFMAML(), srpfl.FedPer()]
    speeds = []
    for algorithm in algorithms:
        [record] = tiny.simulate(algorithm=algorithm, rounds=1, evaluate_every=0).rounds
        speeds.append((record.participants, record.arrivals, record.late, record.late_arrivals))
    assert all(seen == speeds[0] for seen in speeds)

    first = state_of(initial_model(srpfl.models.MLP(4, (8, 5), classes=3), seed=7))
    torch.manual_seed(99)  # whatever the global stream does
    second = state_of(initial_model(srpfl.models.MLP(4, (8, 5), classes=3), seed=7))
    other = state_of(initial_model(srpfl.models.MLP(4, (8, 5), classes=3), seed=8))
    assert tiny.same(first, second)
    assert not tiny.same(first, other)


def test_pretrained_weights_are_kept_on_request() -> None:

    model = tiny.model()
    assert tiny.same(state_of(initial_model(model, 0, pretrained=True)), state_of(model))
    assert not tiny.same(state_of(initial_model(model, 0)), state_of(model))


def test_evaluation_does_not_depend_on_the_order_of_clients() -> None:

    algorithm, net = srpfl.FedRep(), tiny.model()
    shared, personal = partition(state_of(net), algorithm.adapts(net))

    def scores(clients):
        plans = (algorithm.tuning(net),)
        job = Job(0, 3, "evaluate/personalised", clients, shared, [personal] * 6, plans)
        [found] = LoopEngine(net, tiny.data()).test([job])
        return sorted(found, key=lambda score: score.client)

    assert scores([0, 1, 2, 3, 4, 5]) == scores([5, 3, 1, 0, 2, 4])


def test_hf_mamls_adaptation_does_not_leak_into_the_next_clients_test() -> None:
    run = tiny.simulate(algorithm=srpfl.HFMAML(), rounds=2)
    [alone] = [e for e in run.evaluations if e.round == 2]
    assert alone.kind == "global"

    net = tiny.model()
    plans = (srpfl.HFMAML().adaptation(net),)
    for client in range(6):
        job = Job(0, 2, "evaluate/global", [client], run.state.shared, [{}], plans)
        [[score]] = LoopEngine(net, tiny.data()).test([job])
        assert score.sums[0] / score.weight == alone.clients[client]


def test_resuming_goes_on_exactly(tmp_path: Path) -> None:
    whole = tiny.simulate(out=tmp_path / "whole", rounds=6)

    class Stop(srpfl.Watcher):
        def round(self, record):
            if record.round == 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny.simulate(out=tmp_path / "broken", rounds=6, watchers=[Stop()])
    resumed = tiny.simulate(out=tmp_path / "broken", rounds=6, resume=True)
    assert records(tmp_path / "whole") == records(tmp_path / "broken")
    assert tiny.same(whole.state.shared, resumed.state.shared)
    for client in range(6):
        assert tiny.same(whole.parts.of(client), resumed.parts.of(client))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("every", "method"),
    [(1, "fedrep"), (4, "fedrep"), (4, "scaffold"), (1, "fedadam"), (4, "ditto")],
)
def test_kill_9_loses_nothing(tmp_path: Path, every: int, method: str) -> None:
    """A run is killed in the middle and resumed: the records are those of a run left alone."""
    script = Path(__file__).with_name("long_run.py")
    whole, killed = tmp_path / "whole", tmp_path / "killed"

    def start(folder: Path, *flags: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            [sys.executable, str(script), str(folder), str(every), method, *flags], env=environment
        )

    assert start(whole).wait(120) == 0
    process = start(killed)
    deadline = time.monotonic() + 60
    lines = killed / "rounds.jsonl"
    while not (lines.exists() and lines.read_bytes().count(b"\n") >= 6):
        assert time.monotonic() < deadline
        assert process.poll() is None, "the run was over before it could be killed"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL
    assert start(killed, "--resume").wait(120) == 0
    assert records(whole) == records(killed)
    for kind in ("shared", "*"):  # the server's weights and slots, and what clients keep
        names = {file.relative_to(whole) for file in whole.rglob(f"{kind}.safetensors")}
        newest = [name for name in names if name.parts[:2] == ("checkpoints", "000015")]
        for name in newest:
            assert (whole / name).read_bytes() == (killed / name).read_bytes()


def run_of_six(folder: Path) -> None:
    tiny.simulate(out=folder, rounds=6)


def test_a_damaged_checkpoint_is_said_and_the_one_before_is_used(tmp_path: Path, capsys) -> None:
    run_of_six(tmp_path / "whole")
    folder = tmp_path / "damaged"
    run_of_six(folder)
    newest = folder / "checkpoints" / "000006" / "shared.safetensors"
    newest.write_bytes(newest.read_bytes()[:-7])
    tiny.simulate(out=folder, rounds=6, resume=True)
    assert "the checkpoint after round 6 is damaged" in capsys.readouterr().err
    assert records(tmp_path / "whole") == records(folder)


def test_a_cut_record_file_is_said_and_its_round_is_played_again(tmp_path: Path, capsys) -> None:
    run_of_six(tmp_path / "whole")
    folder = tmp_path / "damaged"
    run_of_six(folder)
    lines = folder / "rounds.jsonl"
    lines.write_bytes(lines.read_bytes()[:-20])
    tiny.simulate(out=folder, rounds=6, resume=True)
    assert "line 6, is damaged" in capsys.readouterr().err
    assert records(tmp_path / "whole") == records(folder)


def test_a_lost_evaluation_is_made_again(tmp_path: Path, capsys) -> None:
    run_of_six(tmp_path / "whole")
    folder = tmp_path / "damaged"
    run_of_six(folder)
    lines = folder / "evaluations.jsonl"
    lines.write_bytes(lines.read_bytes()[:-5])
    tiny.simulate(out=folder, rounds=6, resume=True)
    assert "evaluations.jsonl, line 12, is damaged" in capsys.readouterr().err
    assert records(tmp_path / "whole") == records(folder)


def test_two_processes_do_not_write_to_one_run(tmp_path: Path) -> None:
    class Again(srpfl.Watcher):
        def round(self, record):
            tiny.simulate(out=tmp_path / "run", resume=True)

    with pytest.raises(RunFolderError, match="another process is playing the run"):
        tiny.simulate(out=tmp_path / "run", watchers=[Again()])
    assert len(tiny.simulate(out=tmp_path / "run", resume=True).rounds) == 4


def test_a_run_with_everything_damaged_starts_again(tmp_path: Path, capsys) -> None:
    run_of_six(tmp_path / "whole")
    folder = tmp_path / "damaged"
    run_of_six(folder)
    for path in (folder / "checkpoints").glob("*/state.json"):
        path.write_text("{")
    tiny.simulate(out=folder, rounds=6, resume=True)
    assert capsys.readouterr().err.count("is damaged") == 2
    assert records(tmp_path / "whole") == records(folder)


def test_bytes_that_are_no_text_are_said_and_their_round_is_played_again(
    tmp_path: Path, capsys
) -> None:
    run_of_six(tmp_path / "whole")
    run_of_six(tmp_path / "run")
    path = tmp_path / "run" / "rounds.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:4]) + b'{"\xff\xfe"}\n')
    tiny.simulate(out=tmp_path / "run", rounds=6, resume=True)
    assert "line 5, is damaged" in capsys.readouterr().err
    assert records(tmp_path / "whole") == records(tmp_path / "run")


@pytest.mark.slow
def test_lost_records_are_said_and_their_rounds_played_again(tmp_path: Path, capsys) -> None:
    run_of_six(tmp_path / "whole")
    for name, damage in {
        "emptied": lambda lines: [],
        "cut": lambda lines: lines[:3],
        "gap": lambda lines: lines[:2] + lines[3:],
        "twice": lambda lines: [lines[0], *lines],
        "types": lambda lines: [lines[0].replace(b'"stage":0', b'"stage":"x"'), *lines[1:]],
    }.items():
        run_of_six(tmp_path / name)
        path = tmp_path / name / "rounds.jsonl"
        path.write_bytes(b"".join(damage(path.read_bytes().splitlines(keepends=True))))
        capsys.readouterr()
        tiny.simulate(out=tmp_path / name, rounds=6, resume=True)
        assert "the last good state is that after round" in capsys.readouterr().err, name
        assert records(tmp_path / "whole") == records(tmp_path / name), name


def test_a_run_on_other_data_or_in_other_numbers_is_not_gone_on_with(tmp_path: Path) -> None:
    tiny.simulate(out=tmp_path / "run")
    with pytest.raises(RunFolderError, match="a run on other data"):
        tiny.simulate(out=tmp_path / "run", resume=True, data=tiny.data(per_client=13))
    with pytest.raises(RunFolderError, match="differs in precision"):
        tiny.simulate(out=tmp_path / "run", resume=True, precision="float64")


def test_numbers_may_be_numpys(tmp_path: Path) -> None:
    numbers = {"rounds": np.int64(3), "seed": np.int32(1), "evaluate_at": np.arange(1, 3)}
    run = tiny.simulate(out=tmp_path / "run", **numbers)
    assert [point.round for point in run.accuracy] == [1, 2]
    for name in ("rounds", "seed"):
        with pytest.raises(ConfigError, match=f"{name} must be a whole number, not 1.5"):
            tiny.simulate(**{name: 1.5})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda x, y: (x, y - 1), "labels must be whole numbers from 0 to 2"),
        (lambda x, y: (x, y + 1), "labels must be whole numbers from 0 to 2"),
        (lambda x, y: (x, y.astype(float)), "labels must be whole numbers"),
        (lambda x, y: (np.where(x > 0, np.nan, x), y), "not finite"),
        (lambda x, y: (x.astype(complex), y), "must be real numbers"),
        (lambda x, y: (torch.from_numpy(x), y), "must be NumPy arrays"),
    ],
)
def test_data_that_nobody_could_learn_from_is_said(change, sentence: str) -> None:
    data = tiny.data()
    pool = srpfl.data.Samples(*change(*data.train_pool))
    with pytest.raises(DataError, match=sentence):
        tiny.simulate(data=dataclasses.replace(data, train_pool=pool))


def test_labels_may_be_small_integers() -> None:
    data = tiny.data()
    pool = data.train_pool._replace(y=data.train_pool.y.astype(np.int32))
    for engine in ("loop", "vectorised"):
        tiny.simulate(data=dataclasses.replace(data, train_pool=pool), rounds=1, engine=engine)


@pytest.mark.parametrize("text", ["[]", '"run"', "{}"])
def test_a_config_that_is_none_is_said(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(RunFolderError, match=r"config\.json is damaged"):
        srpfl.Run.load(tmp_path)


def test_a_start_that_came_to_nothing_can_be_made_again(tmp_path: Path) -> None:
    for name in (".lock", ".config.json.123", "partition.json"):
        (tmp_path / name).write_text("")
    tiny.simulate(out=tmp_path, rounds=1)
    assert srpfl.Run.load(tmp_path).counts is not None


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise SafetensorError("No space left on device (os error 28)")

    monkeypatch.setattr("srpfl.runs.checkpoint.save", full)
    with pytest.raises(RunFolderError, match=r"cannot save the state to .*No space left"):
        tiny.simulate(out=tmp_path / "run")


def test_old_checkpoints_and_personal_files_go(tmp_path: Path) -> None:
    tiny.simulate(out=tmp_path / "run", rounds=8, participation=srpfl.Everyone())
    kept = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert kept == ["000007", "000008"]
    files = sorted(path.name for path in (tmp_path / "run" / "personal").iterdir())
    assert files == ["000007.safetensors", "000008.safetensors"]


def test_a_folder_in_use_is_not_touched(tmp_path: Path) -> None:
    run_of_six(tmp_path / "run")
    before = records(tmp_path / "run")
    with pytest.raises(RunFolderError, match="already holds a run"):
        tiny.simulate(out=tmp_path / "run")
    with pytest.raises(RunFolderError, match=r"holds another run .it differs in rounds"):
        tiny.simulate(out=tmp_path / "run", rounds=5, resume=True)
    assert records(tmp_path / "run") == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("precious")
    with pytest.raises(RunFolderError, match="is not empty and holds no run"):
        tiny.simulate(out=tmp_path / "other")
    with pytest.raises(RunFolderError, match="holds no run"):
        tiny.simulate(out=tmp_path / "nowhere", resume=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot write"):
        tiny.simulate(out=tmp_path / "file" / "run")


def test_a_diverging_run_keeps_its_last_checkpoint(tmp_path: Path) -> None:
    data = tiny.data()
    run = tiny.simulate(participation=srpfl.Doubling(start=1, every=2), rounds=3)
    joined = next(c for c in run.rounds[2].participants if c not in run.rounds[1].participants)
    broken = data.train_pool.x.copy()
    broken[data.train_parts[joined]] = 1e30
    data = dataclasses.replace(data, train_pool=data.train_pool._replace(x=broken))
    with pytest.raises(DivergedError, match=f"client {joined} has loss nan in round 3"):
        tiny.simulate(data=data, out=tmp_path / "run", evaluate_every=0)
    assert (tmp_path / "run" / "checkpoints" / "000002" / "state.json").exists()
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 2


def test_time_to_a_target_is_the_clock_at_the_first_evaluation_there() -> None:
    run = tiny.simulate(rounds=6, evaluate_every=1)
    best = max(point.mean for point in run.accuracy)
    first = next(point for point in run.accuracy if point.mean >= best)
    assert run.time_to(best) == first.time
    assert run.time_to(best, communication=5) == pytest.approx(first.time + 5 * first.round)
    assert run.time_to(1.01) is None


def test_a_run_stops_at_its_target() -> None:
    run = tiny.simulate(rounds=6, evaluate_every=1, stop_at=0.01)
    assert len(run.rounds) == 1


def test_a_run_is_read_back_from_its_folder(tmp_path: Path) -> None:
    run = tiny.simulate(out=tmp_path / "run")
    loaded = srpfl.Run.load(tmp_path / "run")
    assert loaded.rounds == run.rounds
    assert loaded.evaluations == run.evaluations
    assert json.dumps(loaded.config) == json.dumps(dict(run.config))


def test_numbers_that_make_no_sense_are_refused() -> None:
    for changes, message in [
        ({"rounds": 0}, "at least one round"),
        ({"seed": -1}, "seed must be"),
        ({"evaluate_every": -1}, "evaluate_every"),
        ({"stop_at": 2.0}, "accuracy to stop at"),
        ({"resume": True}, "resume needs the folder"),
        ({"evaluations": ["global"]}, "has no global accuracy"),
        ({"evaluations": ["locl"]}, "did you mean 'local'"),
        ({"engine": "warp"}, "unknown engine 'warp'"),
    ]:
        with pytest.raises(ConfigError, match=message):
            tiny.simulate(**changes)


def test_a_client_without_data_is_named() -> None:
    data = tiny.data()
    parts = [*data.train_parts[:5], np.array([], dtype=np.int64)]
    with pytest.raises(DataError, match="client 5 has no training data"):
        tiny.simulate(data=dataclasses.replace(data, train_parts=parts))

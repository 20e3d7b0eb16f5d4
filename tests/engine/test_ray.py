"""Ray: the same run as in one process, whoever dies. Clusters are small, local, and ended here."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import srpfl
import tiny
from snag import Snag, caught
from srpfl.engine import cluster
from srpfl.engine.ray import RayEngine
from srpfl.errors import ConfigError

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray has many of its own
CHOICES: dict[str, Any] = {"rounds": 5, "evaluate_every": 2, "model": tiny.model()}


LIMIT = 240  # seconds for a test


@pytest.fixture(autouse=True)
def limited() -> Iterator[None]:
    """No test waits for ever, whatever Ray does."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"not done after {LIMIT} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of four nodes with a core each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", environment("")["PYTHONPATH"])  # of the nodes, for `snag`
        made = started()
        patch.setenv("RAY_ADDRESS", made.address)
        yield made
    ray.shutdown()
    made.shutdown()


def started() -> Any:
    from ray.cluster_utils import Cluster

    made = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 1,
            "include_dashboard": False,
            "object_store_memory": 10**8,
            # A lost node is noticed within seconds, not within a minute.
            "_system_config": {"health_check_period_ms": 1000, "health_check_timeout_ms": 3000},
        },
    )
    for _ in range(3):
        made.add_node(num_cpus=1, object_store_memory=10**8)
    return made


def same(one: srpfl.Run, other: srpfl.Run) -> None:
    """Participants and times exactly; sums of floats in another order may differ in their last
    digits, as between any two engines."""
    for mine, theirs in zip(one.rounds, other.rounds, strict=True):
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-5)
        assert replace(mine, loss=0.0) == replace(theirs, loss=0.0)
    pairs = [(one.state.shared, other.state.shared)]
    pairs += [(one.parts.kept(client), other.parts.kept(client)) for client in range(6)]
    for mine, theirs in pairs:
        assert mine.keys() == theirs.keys()
        for name in mine:
            torch.testing.assert_close(mine[name], theirs[name], rtol=1e-4, atol=1e-6)


def test_a_run_on_four_nodes_equals_that_in_one_process(nodes: Any, tmp_path: Path) -> None:
    alone = tiny.simulate(**CHOICES)
    same(tiny.simulate(**CHOICES, engine="ray"), alone)


def test_a_run_whose_actors_average_equals_that_in_one_process(
    nodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each actor has several clients, and nobody looks at a single answer."""
    monkeypatch.setenv("SRPFL_RAY_AVERAGE", "1")
    many: dict[str, Any] = {
        **CHOICES,
        "data": tiny.data(clients=16),
        "participation": srpfl.Everyone(),
        "algorithm": srpfl.FedRep(head_epochs=2, body_epochs=1, weighting="samples"),
    }
    same(tiny.simulate(**many, engine="ray"), tiny.simulate(**many))


def test_an_actor_that_dies_while_they_average_changes_nothing(
    nodes: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where two means at most come to one process, those of four actors make a tree."""
    monkeypatch.setenv("SRPFL_RAY_AVERAGE", "1")
    monkeypatch.setattr("srpfl.engine.ray.FAN", 2)
    usual = RayEngine._put_together
    rounds: list[int] = []

    def killing(engine: RayEngine, refs: list[Any]) -> Any:
        rounds.extend([len(refs)] if refs else [])  # evaluations have none
        if len(rounds) == 2:  # has answered, and would put the others' means together
            ray.kill(engine._actors[0])
        return usual(engine, refs)

    monkeypatch.setattr(RayEngine, "_put_together", killing)
    choices: dict[str, Any] = {
        **CHOICES,
        "data": tiny.data(clients=16),
        "participation": srpfl.Everyone(),
    }
    same(tiny.simulate(**choices, engine="ray"), tiny.simulate(**choices))
    assert len(rounds) == 5 + 1  # the second round was done twice
    assert "another does its clients again" in capsys.readouterr().err


TRAINING = {**CHOICES, "evaluate_every": 0}  # so that whoever hangs is training


def played_while(deed: Callable[[int, str], None], data: Snag, **choices: Any) -> srpfl.Run:
    """A run during which something is done to the process that hangs in the middle of a round."""
    with ThreadPoolExecutor(1) as beside:
        done = beside.submit(lambda: deed(*caught(data.file)))
        run = tiny.simulate(**{**TRAINING, **choices}, data=data, engine="ray")
        done.result()
    return run


def test_a_worker_process_killed_in_mid_round_changes_nothing(
    nodes: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snag = Snag(tmp_path / "hangs")
    run = played_while(lambda process, node: os.kill(process, signal.SIGKILL), snag)
    same(run, tiny.simulate(**TRAINING))
    assert "another does its clients again" in capsys.readouterr().err


def test_a_node_lost_in_mid_round_changes_nothing_and_nobody_waits_for_it(
    nodes: Any, tmp_path: Path
) -> None:
    """Nor for the actor that there is no room for any more: with ten seconds of waiting in each,
    these rounds would take longer than a test may."""
    snag = Snag(tmp_path / "hangs", spared=(nodes.head_node._node_id,))

    def lose(process: int, node: str) -> None:
        [victim] = [each for each in nodes.worker_nodes if each._node_id == node]
        nodes.remove_node(victim, allow_graceful=False)

    run = played_while(lose, snag, rounds=40)
    same(run, tiny.simulate(**{**TRAINING, "rounds": 40}))
    assert len(nodes.list_all_nodes()) == 3


def test_a_run_that_lost_the_head_node_goes_on_in_another_cluster(tmp_path: Path) -> None:
    """The driver ends with the cluster, in the middle of a round; its folder is whole."""
    folder, hangs = tmp_path / "run", tmp_path / "hangs"
    script = (
        "import sys, tiny, snag\n"
        "from pathlib import Path\n"
        "data = snag.Snag(Path(sys.argv[2]), clients_that_hang=(SLOW,))\n"
        "tiny.simulate(engine='ray', rounds=5, evaluate_every=0, data=data, out=sys.argv[1],\n"
        "              resume=bool(sys.argv[3:]))\n"
    )
    alone = tiny.simulate(**TRAINING, out=tmp_path / "alone")
    slow, before = late_comer(alone)
    told = [sys.executable, "-c", script.replace("SLOW", str(slow)), str(folder), str(hangs)]
    with own_cluster(tmp_path / "one") as (address, head):
        driver = subprocess.Popen(told, env=environment(address))
        try:
            caught(hangs)
            os.killpg(head.pid, signal.SIGKILL)
            assert driver.wait(timeout=60) != 0
        finally:
            driver.kill()
            driver.wait(timeout=10)
    assert len(srpfl.Run.load(folder).rounds) == before
    with own_cluster(tmp_path / "two") as (address, _):
        subprocess.run([*told, "on"], env=environment(address), check=True, timeout=90)
    there = srpfl.Run.load(folder)
    for mine, theirs in zip(there.rounds, alone.rounds, strict=True):
        assert replace(mine, loss=0.0) == replace(theirs, loss=0.0)
    newest = "checkpoints/000005/shared.safetensors"
    shared, expected = load_file(folder / newest), load_file(tmp_path / "alone" / newest)
    torch.testing.assert_close(shared, expected, rtol=1e-4, atol=1e-6)


def late_comer(run: srpfl.Run) -> tuple[int, int]:
    """A client that takes part for the first time in the middle of a run, and the rounds before."""
    seen = {0, 1}  # which are looked at before any round
    for record in run.rounds:
        new = set(record.participants) - seen
        if new and record.round > 2:
            return min(new), record.round - 1
        seen |= new
    raise ValueError("all took part at once")


@contextlib.contextmanager
def own_cluster(place: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A head node with two cores, in a process group of its own."""
    port = free_port()
    told = [Path(sys.executable).parent / "ray", "start", "--head", "--block", f"--port={port}"]
    told += ["--num-cpus=2", "--include-dashboard=false", "--object-store-memory=100000000"]
    short = tempfile.mkdtemp(prefix="ray-")  # names of sockets must be short
    place.mkdir()
    with (place / "log").open("wb") as log:
        head = subprocess.Popen(
            [*told, f"--temp-dir={short}"],
            stdout=log,
            stderr=log,
            env=environment(""),
            start_new_session=True,
        )
    try:
        until = time.monotonic() + 60
        while b"Ray runtime started" not in (place / "log").read_bytes():
            if head.poll() is not None or time.monotonic() > until:
                raise RuntimeError((place / "log").read_text())
            time.sleep(0.1)
        yield f"127.0.0.1:{port}", head
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(head.pid, signal.SIGKILL)
        head.wait(timeout=10)
        shutil.rmtree(short, ignore_errors=True)


def free_port() -> int:
    """Outside of those that Ray gives to workers."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port")


def environment(address: str) -> dict[str, str]:
    folders = [str(Path(tiny.__file__).parent), os.environ.get("PYTHONPATH", "")]
    told = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
    told |= {"RAY_ADDRESS": address, "RAY_AUTH_MODE": "disabled"}
    told |= {"RAY_gcs_rpc_server_reconnect_timeout_s": "5"}  # to a head node; a minute by default
    if not address:
        del told["RAY_ADDRESS"]
    return told


def test_an_address_at_which_nobody_listens_is_a_sentence_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray itself would end the whole process, after a minute."""
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")
    with pytest.raises(ConfigError, match=r"cannot reach the Ray cluster .* check RAY_ADDRESS"):
        cluster.check_address()


def test_without_ray_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'srpfl\[ray\]'"):
        cluster.connected()


def test_ctrl_c_waits_until_ray_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray imported by half would print a traceback when Python ends."""
    (tmp_path / "ray.py").write_text(
        "import signal\nsignal.raise_signal(signal.SIGINT)\nwhole = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)  # is put back in the end
    del sys.modules["ray"]
    with pytest.raises(KeyboardInterrupt):
        cluster.connected()
    assert sys.modules["ray"].whole


def test_a_cluster_of_our_own_listens_on_the_loopback_alone_and_ends_with_us() -> None:
    script = (
        "import ray, srpfl, tiny\n"  # Ray first: it reads its environment when it is imported
        "from srpfl.engine.cluster import connected\n"
        "connected(1)\n"
        "assert ray.nodes()[0]['NodeManagerAddress'] == '127.0.0.1'\n"
        "run = tiny.simulate(engine='ray', rounds=2)\n"
        "print(len(run.rounds), ray.is_initialized())\n"
    )
    told = [sys.executable, "-c", script]
    done = subprocess.run(told, capture_output=True, text=True, timeout=120, env=environment(""))
    assert done.stdout.split() == ["2", "False"], done.stderr[-2000:]

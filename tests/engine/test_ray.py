"""Ray: the same run as in one process, whoever dies. Clusters are small, local, and ended here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import srpfl
import tiny
from srpfl.engine import cluster, make_engine
from srpfl.errors import ConfigError

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray has many of its own
CHOICES: dict[str, Any] = {"rounds": 5, "evaluate_every": 2, "model": tiny.model()}


class Once(srpfl.Watcher):
    """Does something after the second round."""

    def __init__(self, deed: Any) -> None:
        self.deed, self.done = deed, False

    def round(self, record: Any) -> None:
        if record.round == 2 and not self.done:
            self.done = True
            self.deed()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of four nodes with a core each."""
    from ray.cluster_utils import Cluster

    made = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": 10**8},
    )
    for _ in range(3):
        made.add_node(num_cpus=1, object_store_memory=10**8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", made.address)
        yield made
    ray.shutdown()
    made.shutdown()


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


def test_a_killed_worker_process_changes_nothing(nodes: Any, capsys) -> None:
    alone = tiny.simulate(**CHOICES)
    engine = make_engine("ray", CHOICES["model"], tiny.data())
    kill = Once(lambda: os.kill(ray.get(engine._actors[0].ready.remote()), signal.SIGKILL))
    same(tiny.simulate(**CHOICES, engine=engine, watchers=[kill]), alone)
    engine.close()
    assert kill.done
    assert "another does its clients again" in capsys.readouterr().err


def test_a_lost_node_changes_nothing(nodes: Any) -> None:
    alone = tiny.simulate(**CHOICES)
    node = nodes.add_node(num_cpus=1, object_store_memory=10**8)
    lose = Once(lambda: nodes.remove_node(node, allow_graceful=False))
    same(tiny.simulate(**CHOICES, engine="ray", watchers=[lose]), alone)
    assert lose.done


def test_without_ray_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'srpfl\[ray\]'"):
        cluster.connected()


def test_a_cluster_of_our_own_listens_on_the_loopback_alone_and_ends_with_us() -> None:
    script = (
        "import os, srpfl, tiny\n"
        "from srpfl.engine.cluster import connected\n"
        "ray = connected(1)\n"
        "assert ray.nodes()[0]['NodeManagerAddress'] == '127.0.0.1'\n"
        "run = tiny.simulate(engine='ray', rounds=2)\n"
        "print(len(run.rounds), ray.is_initialized())\n"
    )
    folders = [str(Path(tiny.__file__).parent), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
    env.pop("RAY_ADDRESS", None)
    told = [sys.executable, "-c", script]
    done = subprocess.run(told, capture_output=True, text=True, timeout=120, env=env)
    assert done.stdout.split() == ["2", "False"], done.stderr[-2000:]

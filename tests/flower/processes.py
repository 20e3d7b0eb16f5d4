"""Real Flower processes for tests; every wait has a limit, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

import srpfl
from srpfl.checkpoint import load as load_checkpoint
from srpfl.clock.base import Work
from srpfl.config import Config, experiment
from srpfl.flower.configured import write_app
from srpfl.flower.local import LocalFlower, until
from srpfl.folder import RunFolder
from srpfl.records import RoundRecord
from srpfl.rounds import State

LIMIT = 300.0  # seconds for any one thing; on a quiet machine most take five

APP = '''"""The usual app, except that a node can be told to answer badly."""

import numpy as np
from flwr.app import Array
from flwr.clientapp import ClientApp

from srpfl.flower import configured

server = configured.server
client = ClientApp()


@client.train()
def train(message, context):
    reply = configured.client(message, context)
    if context.node_config.get("bad"):
        arrays = reply.content["shared"]
        name = next(iter(arrays))
        arrays[name] = Array(np.full(arrays[name].shape, np.nan, dtype=arrays[name].dtype))
    return reply


@client.evaluate()
def evaluate(message, context):
    return configured.client(message, context)


@client.query("hello")
def hello(message, context):
    return configured.client(message, context)


@client.query("settle")
def settle(message, context):
    return configured.client(message, context)
'''


@dataclass
class Trial:
    """One experiment on real nodes, which may be submitted again and again."""

    flower: LocalFlower
    folder: Path
    options: dict[str, Any]
    patience: dict[str, Any]

    @property
    def config(self) -> Config:
        return Config.of(self.options)

    @property
    def out(self) -> Path:
        return self.folder / "run"

    def submit(self) -> str:
        app = write_app(
            self.folder / "app", options=self.options, patience=self.patience, out=self.out
        )
        (app / "srpfl_deployment.py").write_text(APP)
        run = self.flower.submit(app, limit=LIMIT)
        until(lambda: bool(self.server()), LIMIT, "the server app")
        return run

    def server(self) -> list[int]:
        return self.flower.pids("flwr-serverapp")

    def join(self, client: int, **config: Any) -> None:
        own = {"partition-id": client, "personal-dir": str(self.folder / "personal"), **config}
        self.flower.start_node(f"node-{client}", own)

    def working(self, client: int) -> list[int]:
        """The processes in which a node does its work."""
        group = self.flower.nodes[f"node-{client}"].pid
        return [pid for pid in self.flower.pids("flwr-clientapp") if _group(pid) == group]

    def rounds(self) -> list[RoundRecord]:
        return RunFolder(self.out, say=lambda text: None).rounds()

    def wait_for_round(self, number: int) -> None:
        until(lambda: len(self.rounds()) >= number, LIMIT, f"round {number}")

    def wait_for_end(self, run: str) -> str:
        """Wait until the server app has ended; what it printed comes back."""
        until(lambda: not self.server(), LIMIT, "the end of the run")
        log = self.flower.log(run)
        assert "srpfl: the run is over" in log, log[-3000:]
        assert "Traceback" not in log, log[-3000:]
        return log

    def events(self, what: str) -> list[dict[str, Any]]:
        lines = (self.out / "events.jsonl").read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["what"] == what]

    def state(self) -> State:
        found = load_checkpoint(self.out, {}, rounds=1000, say=print)
        assert found is not None
        return found[0]

    def kept(self, client: int) -> Path:
        return self.folder / "personal" / self.config.method / str(client) / "kept.safetensors"

    def check_against_simulator(self) -> None:
        """The simulator, told who answered when, comes to the same shared and personal parts."""
        records = self.rounds()
        assert [record.round for record in records] == list(range(1, len(records) + 1))
        choices = experiment(self.config)
        shown = {**choices, "clock": Replay(records), "participation": Recorded(records)}
        run = srpfl.simulate(**{**shown, "engine": "loop", "evaluate_every": 0})
        assert [r.participants for r in run.rounds] == [r.participants for r in records]
        assert run.state is not None
        assert run.parts is not None
        _close(self.state().shared, run.state.shared)
        for client, part in run.parts.trained.items():
            _close(load_file(self.kept(client)), part)


def _close(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    # The same computation on the same machine; a thread more or less may reorder a sum.
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=1e-5, atol=1e-6)


class Replay:
    """A clock on which those answer first who did."""

    communication = 0.0
    fixed = True

    def __init__(self, records: Sequence[RoundRecord]) -> None:
        self.records = records

    def times(self, seed: int, round: int, clients: Any, population: int, work: Work) -> Any:
        order = self.records[round].participants
        return np.array([order.index(c) if c in order else 1e9 for c in clients], dtype=float)


class Recorded(srpfl.FirstN):
    """Wait for as many as were waited for."""

    def __init__(self, records: Sequence[RoundRecord]) -> None:
        super().__init__()
        object.__setattr__(self, "records", records)

    def call(self, memory: Any, round: int, population: int) -> Any:
        from srpfl.participation import Call

        return Call(ask=population, wait=len(self.records[round].participants))  # type: ignore


def kill(pids: Sequence[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None

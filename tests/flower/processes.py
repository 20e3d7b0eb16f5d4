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
from srpfl.clock.base import Work
from srpfl.core.initial import initial_model
from srpfl.flower.configured import write_app
from srpfl.flower.local import LocalFlower, until
from srpfl.loop.rounds import State
from srpfl.options.config import Config
from srpfl.options.experiment import experiment
from srpfl.runs.checkpoint import Checkpoints
from srpfl.runs.folder import RunFolder
from srpfl.runs.records import RoundRecord
from srpfl.runs.state import ClientParts

LIMIT = 600.0  # seconds for any one thing; on a quiet machine most take five

APP = '''"""The usual app, except that a node can be told to answer badly, to have another model, or
which noise to draw."""

import dataclasses

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.clientapp import ClientApp

import srpfl
from srpfl.algorithms import private
from srpfl.flower import client_app, configured

server = configured.server
client = ClientApp()


def nan(content):
    name, like = first(content)
    content["sent"][name] = Array(np.full(like.shape, np.nan, dtype=like.dtype))


def huge(content):
    name, like = first(content)
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (100000000000,), }\\n"
    data = b"\\x93NUMPY\\x01\\x00" + len(header).to_bytes(2, "little") + header
    content["sent"][name] = Array("float32", (100000000000,), "numpy.ndarray", data)


def npz(content):
    name, like = first(content)
    content["sent"][name] = Array("float32", like.shape, "numpy.ndarray", b"PK\\x03\\x04" * 9)


def odd(content):
    del content["answer"], content["sent"]
    content["answer"] = ArrayRecord()
    content["sent"] = MetricRecord({"loss": 1.0})


def large(content):
    content["more"] = ArrayRecord({"x": Array(np.zeros(30_000_000, dtype=np.uint8))})


def first(content):
    return next(iter(content["sent"].items()))


def other_model(context):
    usual = configured.from_options(context)
    return dataclasses.replace(usual, model=srpfl.models.MLP(64, (48, 16), classes=10))


other = client_app(other_model, configured.share)


def usual(message, context):
    config = context.node_config
    if config.get("noise") == "given":
        private.entropy = lambda key, sent, place: b"given"
    return (other if config.get("model") == "other" else configured.client)(message, context)


@client.train()
def train(message, context):
    reply = usual(message, context)
    ways = [way for way in str(context.node_config.get("bad", "")).split(",") if way]
    if ways:
        round = message.content["assignment"]["round"]
        globals()[ways[round % len(ways)]](reply.content)
    return reply


client.evaluate()(usual)
for question in ("hello", "doing", "refused", "settle", "masks"):
    client.query(question)(usual)
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
        run = experiment(self.config)
        parts = run["algorithm"].split(initial_model(run["model"], self.config.seed))
        state = State(0, 0.0, parts.shared, {}, (), run["algorithm"].server_state(parts))
        checkpoints = Checkpoints(self.out)
        found, _ = checkpoints.load(state, ClientParts({}), rounds=1000, say=print, sealed=True)
        assert found.round
        return found

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

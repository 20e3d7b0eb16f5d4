"""Real processes with a line between nodes and SuperLink that loses answers, and a hostile node."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import PushObjectRequest

from flower.processes import Trial
from srpfl.flower.gateway import CALLS, OPEN, Door, Gateway, Header, Taken
from srpfl.flower.local import LocalFlower, free_port, until

pytestmark = [
    pytest.mark.slow,
    # Lines to processes that were killed: nobody is left to close them.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
DIGITS = {"data": "digits", "clients": 4, "shards": 4, "head_epochs": 3, "body_epochs": 1}
PATIENCE = {"clients": 200.0, "settling": 60.0, "evaluation": 200.0, "round": 1000.0}


class Faulty(Gateway):
    """Passes everything on, except for the first answer that nodes give to training: the SuperLink
    seems to fail once. Of the second one only half arrives."""

    def __init__(self, superlink: str) -> None:
        super().__init__(superlink, Door(calls=CALLS | OPEN))
        self.trained = 0
        self.lost: list[int] = []  # nodes
        self.halved: list[int] = []
        self.sizes: list[int] = []

    async def _ask(
        self, method: str, path: str, call: bytes, scope: Any, taken: Taken
    ) -> tuple[int, list[Header], bytes]:
        failed = 500, [], b""
        if path.endswith("/push-messages"):
            request = PushMessagesRequest.FromString(call)
            self.trained += request.messages_list[0].metadata.message_type == "train"
            if self.trained == 1 and not self.lost:
                self.lost.append(request.node.node_id)
                return failed
            if self.trained == 2 and not self.halved:
                self.halved.append(request.node.node_id)
        if path.endswith("/push-object"):
            number = PushObjectRequest.FromString(call).node.node_id
            if number in self.halved and len(self.halved) == 1:
                self.halved.append(0)
                return failed
        return await super()._ask(method, path, call, scope, taken)


@pytest.fixture
def swept() -> Iterator[None]:
    """Lines that nobody closed are found when all else has ended, and not after the last test."""
    yield
    gc.collect()


@pytest.fixture
def line(tmp_path: Path, swept: None) -> Iterator[tuple[LocalFlower, Faulty]]:
    with LocalFlower(tmp_path / "flower") as flower:
        faulty = Faulty(f"http://{flower.address}")
        port = free_port()
        quiet = {"log_level": "critical", "loop": "asyncio", "lifespan": "on"}
        config = uvicorn.Config(faulty, host="127.0.0.1", port=port, **quiet)  # type: ignore[arg-type]
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        until(lambda: server.started, 60, "the line")
        flower.fleet = f"127.0.0.1:{port}"
        yield flower, faulty
        flower.stop()
        server.should_exit = True
        thread.join(timeout=30)


def test_lost_and_half_uploaded_answers_and_a_hostile_node_cost_little(
    line: tuple[LocalFlower, Faulty], tmp_path: Path
) -> None:
    flower, faulty = line
    options = {**DIGITS, "method": "fedrep", "rounds": 5, "evaluate_every": 0}
    trial = Trial(flower, tmp_path, options, PATIENCE)
    for client in range(3):
        trial.join(client)
    trial.join(3, bad="huge,npz,odd,large")
    began = time.monotonic()
    trial.wait_for_end(trial.submit())
    assert faulty.lost
    assert faulty.halved
    assert trial.events("lost")
    records = trial.rounds()
    assert len(records) == 5
    assert all(3 not in record.participants for record in records)
    # Whoever lost an answer took part again, long before the letter's lifetime (an hour) ended.
    assert any(sorted(record.participants) == [0, 1, 2] for record in records)
    assert time.monotonic() - began < 900
    refused = [event["why"] for event in trial.events("refused") if event["client"] == 3]
    assert len(refused) >= 3, refused
    trial.check_against_simulator()

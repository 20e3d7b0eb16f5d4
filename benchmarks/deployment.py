"""What a server costs with many nodes: python benchmarks/deployment.py --json FILE

The server app plays rounds of srpfl (doubling, at most 100 asked) against Flower's grid API, with
simulated nodes behind it: each answers with its objects as a SuperLink hands them out, after an
exponential time on a virtual clock. The nodes' own part is timed apart and taken off. Each
population is played in a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import argparse
import heapq
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import Message
from flwr.proto.node_pb2 import Node
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.task_identity import TaskIdentity

import srpfl
from srpfl.flower import Experiment, Patience
from srpfl.flower.introduction import agreed
from srpfl.flower.server import serve
from srpfl.flower.wire import PROTOCOL, VERSION, answer_record, read_assignment

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


class Line:
    """A SuperLink's side: replies, object by object. ``spent`` is the nodes' own time."""

    def __init__(self, nodes: int, experiment: Experiment) -> None:
        self.time, self.spent, self.calls = 0.0, 0.0, 0
        self.nodes = nodes
        self.rng = np.random.default_rng(0)
        self.due: list[tuple[float, str, Message]] = []
        self.contents: dict[str, bytes] = {}
        self.objects: dict[str, list[str]] = {}  # by answer
        self.needed: Counter[str] = Counter()  # how many answers hold an object
        self.trees: dict[str, tuple[Any, Any]] = {}
        parts = experiment.algorithm.split(experiment.model)
        self.shared, self.model = parts.shared, agreed(experiment.algorithm, parts)

    def push(self, number: str, message: Message) -> None:
        began = time.process_time()
        quick = message.metadata.message_type.startswith("query")
        seconds = 0.01 if quick else float(self.rng.exponential())
        heapq.heappush(self.due, (self.time + seconds, number, message))
        self.spent += time.process_time() - began

    def _answer(self, message: Message) -> Message:
        assignment = read_assignment(message.content)
        node = message.metadata.dst_node_id
        if message.metadata.message_type == "query.hello":
            said: dict[str, Any] = {"names": [str(node - 2)], "train": [100], "test": [20]}
            said |= {"protocol": PROTOCOL, "version": VERSION, "model": self.model}
            return Message(answer_record(said), reply_to=message)
        who = {"status": "done", "client": assignment.client, "round": assignment.round}
        if message.metadata.message_type != "train":
            return Message(answer_record(who), reply_to=message)
        content = answer_record({**who, "loss": 1.0, "samples": 100}, self.shared)
        return Message(content, reply_to=message)

    def PullMessages(self, request: Any) -> Any:
        self.calls += 1
        began = time.process_time()
        wanted = set(request.message_ids)
        found = []
        while self.due and self.due[0][0] <= self.time:
            _, number, message = heapq.heappop(self.due)
            reply = self._answer(message)
            objects = get_all_nested_objects(reply)
            self.contents |= {name: thing.deflate() for name, thing in objects.items()}
            self.objects[reply.object_id] = list(objects)
            self.needed.update(objects.keys())
            meta = SimpleNamespace(
                reply_to_message_id=number,
                src_node_id=message.metadata.dst_node_id,
                message_id=reply.object_id,
            )
            self.trees[number] = (SimpleNamespace(metadata=meta), get_object_tree(reply))
        found = [self.trees.pop(number) for number in wanted & self.trees.keys()]
        self.spent += time.process_time() - began
        return SimpleNamespace(
            messages_list=[message for message, _ in found],
            message_object_trees=[tree for _, tree in found],
        )

    def PullObject(self, request: Any) -> Any:
        self.calls += 1
        content = self.contents[request.object_id]
        return SimpleNamespace(object_found=True, object_available=True, object_content=content)

    def ConfirmMessageReceived(self, request: Any) -> None:
        """What no other answer holds too is thrown away, as a SuperLink does."""
        self.calls += 1
        for name in self.objects.pop(request.message_object_id, ()):
            self.needed[name] -= 1
            if not self.needed[name]:
                del self.needed[name], self.contents[name]


class SimulatedGrid(Grid):
    """The grid that the server app sees."""

    def __init__(self, line: Line) -> None:
        self._runtime_client, self._run = line, SimpleNamespace(run_id=1)
        self.node = Node(node_id=1)
        self._count = 0

    def get_node_ids(self) -> Iterable[int]:
        self._runtime_client.calls += 1
        return range(2, self._runtime_client.nodes + 2)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            self._count += 1
            message.metadata.__dict__["_message_id"] = f"m{self._count}"
            self._runtime_client.push(f"m{self._count}", message)
            ids.append(f"m{self._count}")
        return ids

    def sleep(self, seconds: float) -> None:
        self._runtime_client.time += seconds

    def now(self) -> float:
        return self._runtime_client.time

    def set_run(self, run: Any) -> None: ...
    @property
    def run(self) -> Any: ...
    def create_message(self, *args: Any, **kwargs: Any) -> Any: ...
    def pull_messages(self, message_ids: Any) -> Any: ...
    def send_and_receive(self, *args: Any, **kwargs: Any) -> Any: ...


def measure(nodes: int, rounds: int) -> dict[str, Any]:
    """One population, in this process."""
    asked = min(100, nodes)
    with tempfile.TemporaryDirectory() as folder:
        experiment = Experiment(
            name="many",
            model=srpfl.models.MLP(64, (128, 64), classes=10),
            algorithm=srpfl.FedRep(),
            participation=srpfl.Doubling(
                start=max(1, asked // 10), every=max(1, rounds // 5), sample=asked
            ),
            clients=nodes,
            out=Path(folder) / "run",
            rounds=rounds,
            evaluate_every=0,
            patience=Patience(poll=0.05, clients=30.0, settling=5.0),
        )
        line = Line(nodes, experiment)
        grid = SimulatedGrid(line)
        began, cpu = time.perf_counter(), time.process_time()
        run = serve(experiment, grid, now=grid.now, sleep=grid.sleep)
        cpu = time.process_time() - cpu - line.spent
    answers = sum(len(record.participants) for record in run.rounds)
    return {
        "nodes": nodes,
        "asked": asked,
        "rounds": rounds,
        "answers": answers,
        "wall_s": time.perf_counter() - began,
        "server_cpu_s": cpu,
        "rounds_per_cpu_s": rounds / cpu,
        "cpu_ms_per_answer": 1000 * cpu / answers,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "calls": line.calls,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[10, 100, 1000, 10_000])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one, given.rounds)))
        return
    rows = []
    for nodes in given.nodes:
        command = [sys.executable, __file__, "--one", str(nodes), "--rounds", str(given.rounds)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print({name: round(value, 2) for name, value in rows[-1].items()}, flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

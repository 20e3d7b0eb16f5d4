"""A node's side: train on its own data within the budget, and keep the personal part at home.

A node is configured by ``--node-config``: ``client-id`` (or ``partition-id``) says which client it
is, ``personal-dir`` where its personal parts are kept. For trials, ``work=5`` makes it do its
training five times over, as a device does that is five times slower.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from srpfl.data.base import Federated
from srpfl.engine.base import Job, cross_entropy
from srpfl.engine.loop import LoopEngine
from srpfl.evaluation import KINDS, preparation, purpose
from srpfl.flower.experiment import Build, built
from srpfl.flower.store import PersonalStore
from srpfl.flower.wire import HELLO, SETTLE, Task, answer_record, read_shared, read_task
from srpfl.simulation import initial_model
from srpfl.split import partition, state_of

Data = Callable[[Context], Federated]


class OutOfTime(Exception):
    """The budget is spent."""


def client_app(experiment: Build, data: Data, *, device: str = "cpu") -> ClientApp:
    """The app of a node, for an experiment (or a function that makes it from Flower's context) and
    a function that loads the node's own data. ``device`` is where it computes, such as "cuda".

    >>> import srpfl, srpfl.flower
    >>> everyone = srpfl.data.load("digits", clients=4)
    >>> app = srpfl.flower.client_app(
    ...     srpfl.flower.Experiment(
    ...         name="srpfl", model=srpfl.models.MLP(64, (32,), classes=10),
    ...         algorithm=srpfl.FedRep(), participation=srpfl.Doubling(start=1, every=2),
    ...         clients=4, rounds=6, out="runs/flower",
    ...     ),
    ...     data=lambda context: srpfl.flower.share_of(
    ...         everyone, int(context.node_config["partition-id"])
    ...     ),
    ... )
    """
    app = ClientApp()

    @app.query(HELLO.split(".")[1])
    def hello(message: Message, context: Context) -> Message:
        return Message(answer_record({"name": client_name(context)}), reply_to=message)

    @app.query(SETTLE.split(".")[1])
    def settle(message: Message, context: Context) -> Message:
        task = read_task(message.content)
        _store(context, task).settle(task.counted)
        return _reply(message, task, "done")

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Work(message, context, experiment, data, device).train()

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Work(message, context, experiment, data, device).evaluate()

    return app


class Work:
    """One message's work. The budget runs from the moment at which the node takes it up."""

    def __init__(
        self, message: Message, context: Context, experiment: Build, data: Data, device: str
    ) -> None:
        self.message, self.task = message, read_task(message.content)
        self.ends = time.monotonic() + self.task.budget
        self.store = _store(context, self.task)
        self.store.settle(self.task.counted)
        self.repeats = int(context.node_config.get("work", 1))
        choices = built(experiment, context)
        self.algorithm = choices.algorithm
        self.model = initial_model(choices.model, self.task.seed, pretrained=choices.pretrained)
        is_personal = self.algorithm.is_personal(self.model)
        like, initial = partition(state_of(self.model), is_personal)
        self.shared = read_shared(message.content, like)
        self.personal = self.store.load(initial)
        self.engine = LoopEngine(self.model, data(context), loss=self._timed_loss, device=device)

    def train(self) -> Message:
        task = self.task
        job = Job(
            seed=task.seed,
            round=task.round,
            purpose="train",
            clients=[task.client],
            shared=self.shared,
            personal=[self.personal],
            plan=self.algorithm.plan(self.model),
            wants_gradient=task.wants_gradient,
        )
        try:
            local = [self.engine.train(job) for _ in range(self.repeats)][-1][0]
        except OutOfTime:
            return _reply(self.message, task, "gave up")
        if local.personal:
            self.store.propose(local.personal, task.round + 1)
        arrays = {"shared": local.shared}
        if local.gradient is not None:
            arrays["gradient"] = local.gradient
        result = {"loss": local.loss, "samples": local.samples}
        return _reply(self.message, task, "done", result, **arrays)

    def evaluate(self) -> Message:
        """From the client's own personal part; nothing of it is kept."""
        task = self.task
        result: dict[str, Any] = {}
        for kind in KINDS:
            if kind not in task.kinds.split(","):
                continue
            shared, start, plan = preparation(
                kind, self.shared, self.personal, self.algorithm, self.model
            )
            job = Job(task.seed, task.round, purpose(kind), [task.client], shared, [start], plan)
            try:
                score = self.engine.test(job)[0]
            except OutOfTime:
                return _reply(self.message, task, "gave up")
            result |= {f"{kind}/correct": score.correct, f"{kind}/total": score.total}
        return _reply(self.message, task, "done", result)

    def _timed_loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        # Every step computes its loss, so this is where a step looks at the clock.
        if time.monotonic() > self.ends:
            raise OutOfTime
        return cross_entropy(outputs, targets)


def client_name(context: Context) -> str:
    """What the operator calls this client; else the node's id, which lasts as long as its key."""
    configured = context.node_config
    for key in ("client-id", "partition-id"):
        if key in configured:
            return str(configured[key])
    return f"node-{context.node_id}"


def personal_dir(context: Context) -> Path:
    usual = os.environ.get("SRPFL_PERSONAL", "~/.srpfl/personal")
    return Path(str(context.node_config.get("personal-dir", usual))).expanduser()


def _store(context: Context, task: Task) -> PersonalStore:
    return PersonalStore(personal_dir(context), task.experiment, client_name(context))


def _reply(
    message: Message, task: Task, status: str, result: dict[str, Any] | None = None, **arrays: Any
) -> Message:
    values = {"status": status, "client": task.client, "round": task.round, **(result or {})}
    return Message(answer_record(values, **arrays), reply_to=message)

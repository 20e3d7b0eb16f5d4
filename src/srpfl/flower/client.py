"""A node's side: train on its own data within the budget, and keep the personal part at home.

A node is configured by ``--node-config``: ``client-id`` (or ``partition-id``) says which client it
is, ``personal-dir`` where its personal parts are kept, ``device``, ``engine`` and ``precision`` how
it computes. For trials, ``work=5`` makes it do its training five times over, as a device does that
is five times slower.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from srpfl.algorithms.base import Evaluation, client_state_of
from srpfl.algorithms.summed import Secure
from srpfl.core.initial import initial_model
from srpfl.core.pieces import Travels, cut
from srpfl.core.plan import cut as cut_plans
from srpfl.core.slots import Slots, packed, unpacked
from srpfl.core.split import Params
from srpfl.data.base import Federated
from srpfl.engine import make_engine
from srpfl.engine.base import Job, Local
from srpfl.errors import ConfigError, RunFolderError
from srpfl.flower.events import say
from srpfl.flower.experiment import Build, built
from srpfl.flower.introduction import introduction
from srpfl.flower.store import PersonalStore
from srpfl.flower.texts import harmless
from srpfl.flower.wire import (
    DOING,
    HELLO,
    MASKS,
    REFUSED,
    SETTLE,
    TRAIN,
    Assignment,
    answer_record,
    read_assignment,
    read_sent,
)
from srpfl.loop.evaluation import preparation, purpose
from srpfl.loop.simulation import finisher_of
from srpfl.task import Task
from srpfl.task.base import Losses

EVALUATIONS: tuple[Evaluation, ...] = ("personalised", "global", "local")
Data = Callable[[Context], Federated | Mapping[str, Federated]]


LEAST = 0.1  # of the local work: what is done in any case
SAFE = 0.9  # of the time until a deadline is for work, the rest for the answer's way


class OutOfTime(Exception):
    """The budget is spent."""


@dataclass(frozen=True)
class Computing:
    """How a node computes, unless its --node-config says otherwise."""

    device: str = "cpu"
    engine: str = "loop"  # the one that looks at the budget between any two steps
    precision: str = "float32"

    def on(self, context: Context) -> Computing:
        own = context.node_config
        return Computing(
            str(own.get("device", self.device)),
            str(own.get("engine", self.engine)),
            str(own.get("precision", self.precision)),
        )


def client_app(
    experiment: Build,
    data: Data,
    *,
    device: str = "cpu",
    engine: str = "loop",
    precision: str = "float32",
) -> ClientApp:
    """The app of a node, for an experiment (or a function that makes it from Flower's context) and
    a function that loads the node's own data: one client's, or several clients' by name. The rest
    says how it computes, as in ``simulate``.

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
    app, usual = ClientApp(), Computing(device, engine, precision)

    @app.query(HELLO.split(".")[1])
    def hello(message: Message, context: Context) -> Message:
        assignment = read_assignment(message.content)
        name, own = client_name(context), clients_of(context, data)
        try:
            for client in own:
                _store(context, assignment, client).check_owner()
        except RunFolderError as error:
            return Message(answer_record({"refusal": str(error)}), reply_to=message)
        said = introduction(built(experiment, context), own, name)
        return Message(answer_record(said), reply_to=message)

    @app.query(DOING.split(".")[1])
    def doing(message: Message, context: Context) -> Message:
        return Message(answer_record({"status": "nothing"}), reply_to=message)

    @app.query(REFUSED.split(".")[1])
    def refused(message: Message, context: Context) -> Message:
        why = message.content.config_records["refusal"].get("why", "")
        say(f"the server refuses this node: {harmless(why)}", level="warning", kind="refused")
        return Message(answer_record({"status": "heard"}), reply_to=message)

    @app.query(MASKS.split(".")[1])
    def masks(message: Message, context: Context) -> Message:
        from srpfl.flower.member import answered

        assignment = read_assignment(message.content)
        _owned(context, assignment)
        said = answered(message.content, context, assignment)
        return _reply(message, assignment, "done", said)

    @app.query(SETTLE.split(".")[1])
    def settle(message: Message, context: Context) -> Message:
        assignment = read_assignment(message.content)
        _owned(context, assignment).settle(assignment.counted)
        return _reply(message, assignment, "done")

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return NodeWork(message, context, experiment, data, usual).train()

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return NodeWork(message, context, experiment, data, usual).evaluate()

    return app


class NodeWork:
    """One message's work. The budget runs from the moment at which the node takes it up."""

    def __init__(
        self, message: Message, context: Context, experiment: Build, data: Data, usual: Computing
    ) -> None:
        self.context = context
        self.message, self.assignment = message, read_assignment(message.content)
        ends = time.monotonic() + self.assignment.budget
        self.store = _owned(context, self.assignment)
        self.store.settle(self.assignment.counted)
        self.repeats = int(context.node_config.get("work", 1))
        choices = built(experiment, context)
        self.algorithm = algorithm = choices.algorithm
        seed = self.assignment.seed
        model = initial_model(choices.model, seed, pretrained=choices.pretrained)
        self.model = algorithm.prepared(model)
        parts = algorithm.split(self.model)
        sends = algorithm.sends(algorithm.server_state(parts))
        whole = message.metadata.message_type != TRAIN  # as evaluation needs it
        self.travels = partial(_all if whole else algorithm.travels, client=self.assignment.client)
        like = packed(parts.shared, sends)
        self.shared, self.server = read_sent(message.content, like, self.travels)
        initial = packed(parts.personal, client_state_of(algorithm, parts))
        self.personal, self.own = unpacked(self.store.load(initial))
        self.wire = {**packed(parts.shared, sends), **initial}  # types that travel and are kept
        own, how = clients_of(context, data), usual.on(context)
        self.data = own[self.assignment.name or client_name(context)]
        self.engine = make_engine(
            how.engine,
            self.model,
            self.data,
            task=Timed(choices.task, ends),
            device=how.device,
            precision=how.precision,
        )

    def train(self) -> Message:
        assignment = self.assignment
        try:
            local, part = self._in_time() if assignment.within else self._work(assignment.part)
        except OutOfTime:
            return _reply(self.message, assignment, "gave up")
        kept = self._as_agreed(packed(local.reply.personal, local.reply.own))
        if kept:
            self.store.propose(kept, assignment.round + 1)
        sent = self._as_agreed(packed(local.reply.shared, local.reply.sent))
        sent = cut(sent, self.travels(self.shared, self.server).up)
        if isinstance(hides := self.algorithm.hides, Secure):
            from srpfl.flower.member import masked

            vector = partial(hides.secret().vector, self.shared, sent, local.loss)
            sent = masked(self.message.content, self.context, assignment, vector)
            return _reply(self.message, assignment, "done", {}, sent)
        result = {"loss": local.loss, "samples": local.samples, "part": part}
        return _reply(self.message, assignment, "done", result, sent)

    def _in_time(self) -> tuple[Local, float]:
        """As much of the work as there is time for. Steps cannot be undone, so the first tenth says
        how long the rest will take, and is done again with it."""
        began = time.monotonic()
        local, _ = self._work(LEAST)
        part = affordable(time.monotonic() - began, self.assignment.within)
        return (local, LEAST) if part <= LEAST else self._work(part)

    def _work(self, part: float) -> tuple[Local, float]:
        """What comes of the first part of the work, in tenths of it."""
        assignment, plans = self.assignment, self.algorithm.plans(self.model)
        if part < 1:
            plans = cut_plans(plans, self.data.size(assignment.client), part)
        job = Job(
            seed=assignment.seed,
            round=assignment.round,
            purpose="train",
            clients=[assignment.client],
            shared=self.shared,
            personal=[self.personal],
            plans=plans,
            server=self.server,
            own=[self.own],
            wants_gradient=assignment.wants_gradient,
            finisher=finisher_of(self.algorithm),
        )
        [local] = [self.engine.train([job])[0] for _ in range(self.repeats)][-1]
        return local, part

    def _as_agreed(self, part: Params) -> Params:
        """In the types that both sides know, whatever precision this node computes in."""
        like = self.wire
        return {n: v.to(like[n].dtype) if n in like else _plain(v) for n, v in part.items()}

    def evaluate(self) -> Message:
        """From the client's own personal part; nothing of it is kept."""
        assignment = self.assignment
        result: dict[str, Any] = {}
        for kind in EVALUATIONS:
            if kind not in assignment.kinds.split(","):
                continue
            part = self.personal
            if kind == "local":
                slots = {**self.server, **self.own}
                part = self.algorithm.own(self.shared, self.personal, slots)
            shared, start, plan = preparation(kind, self.shared, part, self.algorithm, self.model)
            clients, round = [assignment.client], assignment.round
            job = Job(assignment.seed, round, purpose(kind), clients, shared, [start], (plan,))
            try:
                [score] = self.engine.test([job])[0]
            except OutOfTime:
                return _reply(self.message, assignment, "gave up")
            result |= {f"{kind}/sums": list(score.sums), f"{kind}/weight": score.weight}
        return _reply(self.message, assignment, "done", result)


def affordable(tenth: float, within: float) -> float:
    """What part of the work fits into the time that is left, if a tenth took so long.

    >>> [affordable(1.0, within) for within in (1.5, 6.0, 20.0)]
    [0.1, 0.4, 1.0]
    """
    left = SAFE * within - tenth
    return min(1.0, max(LEAST, math.floor(left / max(tenth, 1e-9) + 1e-9) / 10))


class Timed(Task):
    """A task that looks at the clock. Every step computes its loss, so this is the place for it."""

    def __init__(self, task: Task, ends: float) -> None:
        object.__setattr__(self, "task", task)
        object.__setattr__(self, "ends", ends)

    def loss(self, outputs: Any, y: torch.Tensor) -> Losses:
        if time.monotonic() > self.ends:  # type: ignore[attr-defined]
            raise OutOfTime
        losses: Losses = self.task.loss(outputs, y)  # type: ignore[attr-defined]
        return losses

    def score(self, outputs: Any, y: torch.Tensor) -> Losses:
        scores: Losses = self.task.score(outputs, y)  # type: ignore[attr-defined]
        return scores


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


def clients_of(context: Context, data: Data) -> dict[str, Federated]:
    """The data of this node's clients by their names, the node's name in front where it has
    several."""
    name, found = client_name(context), data(context)
    if not isinstance(found, Mapping):
        return {name: found}
    if not found:
        raise ConfigError(f"node '{name}' has the data of no client")
    return {f"{name}/{client}": part for client, part in found.items()}


def _store(context: Context, assignment: Assignment, client: str) -> PersonalStore:
    run, inherit = assignment.run, assignment.inherit
    root = personal_dir(context)
    return PersonalStore(root, assignment.experiment, client, run=run, inherit=inherit)


def _owned(context: Context, assignment: Assignment) -> PersonalStore:
    store = _store(context, assignment, assignment.name or client_name(context))
    store.check_owner()
    return store


def _all(shared: Params, server: Slots, client: int) -> Travels:
    return Travels()


def _plain(value: torch.Tensor) -> torch.Tensor:
    return value.float() if value.is_floating_point() else value


def _reply(
    message: Message,
    assignment: Assignment,
    status: str,
    result: dict[str, Any] | None = None,
    sent: Params | None = None,
) -> Message:
    who = {"client": assignment.client, "round": assignment.round}
    return Message(
        answer_record({"status": status, **who, **(result or {})}, sent), reply_to=message
    )

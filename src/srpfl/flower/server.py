"""The server's side: the round loop on Flower's grid, kept in a run folder, continued after a
restart."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from torch import nn

from srpfl.algorithms.base import Algorithm, Evaluation, expected_reply, with_secrets
from srpfl.algorithms.summed import Secure
from srpfl.core.initial import initial_model
from srpfl.core.split import Params
from srpfl.engine.base import Score
from srpfl.flower.desk import Desk
from srpfl.flower.events import Events, say
from srpfl.flower.experiment import Build, Experiment, built
from srpfl.flower.introduction import agreed
from srpfl.flower.judging import judged, over_clients
from srpfl.flower.keeping import KeepingFlowerTransport
from srpfl.flower.parcels import Limit
from srpfl.flower.reporter import Reporter
from srpfl.flower.roll import Numbers
from srpfl.flower.transport import FlowerTransport
from srpfl.loop.evaluation import record_of
from srpfl.loop.rounds import initial_state
from srpfl.loop.running import Course, History, play_rounds
from srpfl.loop.simulation import described_fixed, described_task
from srpfl.loop.watchers import Watcher
from srpfl.runs.describe import describe
from srpfl.runs.files import write_text
from srpfl.runs.folder import CONFIG, FORMAT, RunFolder
from srpfl.runs.metric import shown
from srpfl.runs.records import EvaluationRecord, RoundRecord
from srpfl.runs.run import Run
from srpfl.runs.state import ClientParts, State

IDENTITY = "identity"


def server_app(experiment: Build) -> ServerApp:
    """The app of the server, for an experiment or a function that makes it from Flower's context.

    >>> import srpfl, srpfl.flower
    >>> app = srpfl.flower.server_app(
    ...     srpfl.flower.Experiment(
    ...         name="srpfl", model=srpfl.models.MLP(64, (32,), classes=10),
    ...         algorithm=srpfl.FedRep(), participation=srpfl.Doubling(start=1, every=2),
    ...         clients=4, rounds=6, out="runs/flower",
    ...     )
    ... )
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        about = {"flower_run": str(context.run_id), "run_config": dict(context.run_config)}
        serve(built(experiment, context), grid, watchers=[Lines()], about=about)

    return app


def serve(
    experiment: Experiment,
    grid: Grid,
    *,
    watchers: Sequence[Watcher] = (),
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    about: dict[str, Any] | None = None,
) -> Run:
    """Play the experiment, or go on with it, and return the run. ``about`` goes into the status:
    which run of Flower's it is, and with which settings."""
    algorithm, participation = with_secrets(experiment.algorithm), experiment.participation
    model = algorithm.prepared(
        initial_model(experiment.model, experiment.seed, pretrained=experiment.pretrained)
    )
    parts = algorithm.split(model)
    algorithm.plans(model)  # refuses what makes no sense
    slots = algorithm.server_state(parts)
    state = initial_state(parts.shared, participation, experiment.clients, slots)
    config = deployment_config(experiment, model)
    folder = RunFolder(Path(experiment.out))
    with ExitStack() as closing:
        closing.callback(folder.release)
        state = _open(folder, config, state)
        history = History(folder, watchers)
        events = Events(folder.path)
        replies = expected_reply(algorithm, parts)
        desk = Desk(
            grid,
            experiment,
            run=identity(folder.path),
            model=agreed(algorithm, parts),
            limit=largest_reply(replies, parts.shared),
            numbers=Numbers(experiment.clients, folder.path),
            counted=last_counted(history.rounds),
            events=events,
            now=now,
            sleep=sleep,
        )
        desk.round = state.round
        transport = transport_of(algorithm, desk, replies, parts.trainable)
        if not experiment.has_keys:
            say("nodes are not authenticated: anyone who reaches the port can be any client")
        reporter = Reporter(folder.path, desk, about or {})
        reporter.done = state.round
        closing.push(reporter.ended)
        desk.report = reporter.report
        history.begin(experiment.name, experiment.rounds, state.round, config)
        closing.callback(history.end)
        transport.gather()
        tested: dict[int, dict[str, list[Score]]] = {}  # by round; clients are asked for all kinds

        def evaluated(kind: Evaluation, state: State) -> EvaluationRecord | None:
            if state.round not in tested:
                tested.clear()
                tested[state.round] = transport.evaluate(state)
            scores = tested[state.round][kind]
            if not any(score.weight for score in scores):  # 0 would be the best of errors
                say(f"after round {state.round}: no {kind} evaluation, as nobody answered it")
                return None
            return judged(record_of(kind, state, scores, experiment.task), experiment.judge)

        def saved(state: State) -> None:
            folder.save(state, ClientParts({}))
            reporter.done = state.round

        state = play_rounds(
            state,
            course=Course(
                rounds=experiment.rounds,
                due=experiment.evaluated,
                kinds=experiment.kinds,
                headline=algorithm.headline,
                stop_at=experiment.stop_at,
                tries=experiment.patience.tries,
            ),
            algorithm=algorithm,
            participation=participation,
            transport=transport,
            seed=experiment.seed,
            history=history,
            evaluate=evaluated,
            save=saved,
        )
        transport.finish()
        say(f"beside the rounds: {events.summary()}")
    return Run(config, history.rounds, history.evaluations, state)


def transport_of(
    algorithm: Algorithm, desk: Desk, replies: Params, trainable: Collection[str]
) -> FlowerTransport:
    """The way to nodes that the algorithm's answers need."""
    hides = algorithm.hides
    if not isinstance(hides, Secure):
        return KeepingFlowerTransport(desk, replies=replies, trainable=trainable)
    # Its libraries are needed by nobody else.
    from srpfl.flower.masked import MaskedTransport

    return MaskedTransport(desk, replies=replies, trainable=trainable, hides=hides)


def identity(folder: Path) -> str:
    """Which run this is, beside its name: the same after a restart, another in another folder."""
    path = folder / IDENTITY
    if not path.exists():
        write_text(path, uuid.uuid4().hex + "\n")
    return path.read_text().strip()


def largest_reply(replies: Params, shared: Params) -> Limit:
    """What an answer may have: what it holds, a gradient beside it, and some for the format and for
    numbers. An array travels as an object of its own and one for each of its pieces."""
    arrays = [*replies.values(), *shared.values()]
    size = sum(v.numel() * v.element_size() + 4096 for v in arrays) + (1 << 20)
    return Limit(size, 100 + 3 * len(arrays) + size // (1 << 20))


def last_counted(rounds: Sequence[RoundRecord]) -> dict[int, int]:
    """The last round in which each client took part: all that a server has to remember of whom it
    owes word."""
    return {
        client: record.round - age
        for record in rounds
        for client, age in zip_longest(record.participants, record.ages, fillvalue=0)
    }


def deployment_config(experiment: Experiment, model: nn.Module) -> dict[str, Any]:
    """What the run depends on, in the simulator's format."""
    return {
        "format": FORMAT,
        "name": experiment.name,
        "headline": experiment.algorithm.headline,
        "communication": 0.0,
        "sees_communication": experiment.participation.sees_communication,
        "algorithm": describe(experiment.algorithm),
        "participation": describe(experiment.participation),
        "clock": {"kind": "RealTime"},
        "task": described_task(experiment.task),
        "model": str(model),
        "data": {"name": "on the clients", "clients": experiment.clients},
        "rounds": experiment.rounds,
        "seed": experiment.seed,
        # Not the simulator's name for it: a server never goes back behind a round that counted.
        "evaluated_after": sorted(experiment.evaluated),
        "evaluations": list(experiment.kinds),
        "stop_at": experiment.stop_at,
        "options": experiment.options,
        **described_fixed(experiment.algorithm.split(model)),
    }


def _open(folder: RunFolder, config: dict[str, Any], state: State) -> State:
    """Begin in an empty folder, or continue the run that is there. The folder is then this
    server's alone: two of them would count answers twice."""
    if not (folder.path / CONFIG).exists():
        folder.create(config)
        return state
    folder.check_same(config)
    found, _ = folder.restore(state, ClientParts({}))
    return found


class Lines(Watcher):
    """One line per round and evaluation, for Flower's log."""

    def begin(self, name: str, rounds: int, done: int) -> None:
        self._rounds = rounds
        say(f"{name}, {rounds} rounds, {done} of them done")

    def round(self, record: RoundRecord) -> None:
        shown_of = ", ".join(map(str, record.participants[:20]))
        more = ", ..." if len(record.participants) > 20 else ""
        say(
            f"round {record.round} of {self._rounds}: {len(record.participants)} of "
            f"{record.asked} ({shown_of}{more}) in {record.duration:.1f} s, loss {record.loss:.4f}",
            kind="round",
            round=record.round,
            n=len(record.participants),
            asked=record.asked,
            seconds=record.duration,
            loss=record.loss,
        )

    def evaluation(self, record: EvaluationRecord) -> None:
        tested = sum(weight > 0 for weight in record.weights)
        mean = over_clients(record)
        say(
            f"after round {record.round}: {record.kind} {record.metric} "
            f"{shown(record.metric, record.value)} of {tested} clients "
            f"({shown(record.metric, mean)} if all count alike)",
            kind="evaluation",
            round=record.round,
            evaluation=record.kind,
            metric=record.metric,
            value=record.value,
            mean=mean,
            clients=tested,
        )

    def end(self) -> None:
        say("the run is over", kind="end")

"""The server's side: the round loop on Flower's grid, kept in a run folder, gone on with after a
restart."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from torch import nn

from srpfl.evaluation import summed
from srpfl.flower.events import Events
from srpfl.flower.experiment import Build, Experiment, built
from srpfl.flower.roll import Numbers
from srpfl.flower.transport import FlowerTransport
from srpfl.folder import CONFIG, RunFolder
from srpfl.population import PersonalParts
from srpfl.records import EvaluationRecord, RoundRecord
from srpfl.rounds import NoAnswerError, State, initial_state, play
from srpfl.run import Run
from srpfl.simulation import FORMAT, History, describe, initial_model
from srpfl.split import partition, state_of
from srpfl.watchers import Watcher


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
        serve(built(experiment, context), grid, watchers=[Lines()])

    return app


def serve(
    experiment: Experiment,
    grid: Grid,
    *,
    watchers: Sequence[Watcher] = (),
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Run:
    """Play the experiment, or go on with it, and return the run."""
    model = initial_model(experiment.model, experiment.seed, pretrained=experiment.pretrained)
    shared, _ = partition(state_of(model), experiment.algorithm.is_personal(model))
    experiment.algorithm.plan(model)  # refuses a split that makes no sense
    state = initial_state(shared, experiment.participation, experiment.clients)
    config = deployment_config(experiment, model)
    folder = RunFolder(Path(experiment.out))
    with ExitStack() as closing:
        closing.callback(folder.release)
        state = _open(folder, config, state)
        history = History(folder, watchers)
        events = Events(folder.path)
        transport = FlowerTransport(
            grid,
            experiment,
            numbers=Numbers(experiment.clients, folder.path),
            counted=last_counted(history.rounds),
            events=events,
            now=now,
            sleep=sleep,
        )
        history.begin(experiment.name, experiment.rounds, state.round, config)
        closing.callback(history.end)
        transport.gather()
        state = _play_all(experiment, state, transport, history, folder)
        transport.finish()
        print(f"srpfl: beside the rounds: {events.summary()}", flush=True)
    return Run(config, history.rounds, history.evaluations, state)


def _play_all(
    experiment: Experiment,
    state: State,
    transport: FlowerTransport,
    history: History,
    folder: RunFolder,
) -> State:
    """Rounds until the end. A round is saved before anyone hears that it counted, and evaluated
    after that: a client tests the part that it has just been told to keep."""
    _evaluate_if_due(experiment, state, transport, history)
    headline = experiment.algorithm.headline
    tries = 0
    while state.round < experiment.rounds and not history.reached(experiment.stop_at, headline):
        started = time.perf_counter()
        try:
            state, record = play(
                state,
                algorithm=experiment.algorithm,
                participation=experiment.participation,
                transport=transport,
                seed=experiment.seed,
            )
        except NoAnswerError:
            tries += 1
            if tries >= experiment.patience.tries:
                raise
            continue
        tries = 0
        history.add(record)
        folder.save(state, PersonalParts({}))
        folder.add_timing(state.round, time.perf_counter() - started)
        _evaluate_if_due(experiment, state, transport, history)
    return state


def _evaluate_if_due(
    experiment: Experiment, state: State, transport: FlowerTransport, history: History
) -> None:
    done = {record.kind for record in history.evaluations if record.round == state.round}
    if state.round not in experiment.evaluated:
        return
    if done >= set(experiment.kinds):  # a server that went on may find it done
        return
    scores = transport.evaluate(state)
    for kind in experiment.kinds:
        if kind not in done:
            history.add(summed(kind, state, scores[kind]))


def last_counted(rounds: Sequence[RoundRecord]) -> dict[int, int]:
    """The last round in which each client took part: all that a server has to remember of whom it
    owes word."""
    return {client: record.round for record in rounds for client in record.participants}


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
        "model": str(model),
        "data": {"name": "on the clients", "clients": experiment.clients},
        "rounds": experiment.rounds,
        "seed": experiment.seed,
        # Not the simulator's name for it: a server never goes back behind a round that counted.
        "evaluated_after": sorted(experiment.evaluated),
        "evaluations": list(experiment.kinds),
        "stop_at": experiment.stop_at,
        "options": experiment.options,
    }


def _open(folder: RunFolder, config: dict[str, Any], state: State) -> State:
    """Begin in an empty folder, or go on with the run that is there. The folder is then this
    server's alone: two of them would count answers twice."""
    if not (folder.path / CONFIG).exists():
        folder.create(config)
        return state
    folder.check_same(config)
    found = folder.restore({})
    return found[0] if found else state


class Lines(Watcher):
    """One line per round and evaluation, for Flower's log."""

    def begin(self, name: str, rounds: int, done: int) -> None:
        self._rounds = rounds
        print(f"srpfl: {name}, {rounds} rounds, {done} of them done", flush=True)

    def round(self, record: RoundRecord) -> None:
        who = ", ".join(map(str, record.participants))
        print(
            f"srpfl: round {record.round} of {self._rounds}: {len(record.participants)} of "
            f"{record.asked} ({who}) in {record.duration:.1f} s, loss {record.loss:.4f}",
            flush=True,
        )

    def evaluation(self, record: EvaluationRecord) -> None:
        tested = sum(count > 0 for count in record.tested)
        print(
            f"srpfl: after round {record.round}: {record.kind} accuracy "
            f"{100 * record.accuracy:.1f} % of {tested} clients",
            flush=True,
        )

    def end(self) -> None:
        print("srpfl: the run is over", flush=True)

"""Playing a whole run on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from torch import nn

from srpfl.algorithms.base import Algorithm, Evaluation, Wired, client_state_of
from srpfl.clock.base import Clock, ComesAndGoes
from srpfl.clock.checks import communication_of
from srpfl.clock.exponential import FixedExponential
from srpfl.core.backbone import hash_of
from srpfl.core.initial import check_start, initial_model
from srpfl.core.means import Weighting
from srpfl.core.split import Split
from srpfl.data.base import Federated
from srpfl.data.checks import Checked, check_data
from srpfl.engine import Engine, Job, Local, Score, make_engine
from srpfl.engine.base import Finishes
from srpfl.engine.fit import check_extremes, check_fit
from srpfl.errors import ConfigError, DataError, RunFolderError
from srpfl.loop.arguments import checked, plain
from srpfl.loop.costs import Costs
from srpfl.loop.evaluation import check_kinds, default_kinds, evaluate, preparation
from srpfl.loop.longer import as_long_as, due_of_longer, lengthened
from srpfl.loop.population import VirtualTransport
from srpfl.loop.recalled import recalling
from srpfl.loop.rounds import initial_state
from srpfl.loop.running import Course, History, check_target, evaluated_rounds, play_rounds
from srpfl.loop.watchers import Watcher, shown
from srpfl.participation.base import Participation, Sampling
from srpfl.participation.everyone import Everyone
from srpfl.runs.describe import describe
from srpfl.runs.folder import FORMAT, Counts, RunFolder
from srpfl.runs.records import EvaluationRecord
from srpfl.runs.results import Made
from srpfl.runs.run import Run
from srpfl.runs.state import ClientParts, State
from srpfl.task import Classification, Task

EVERYONE, FIXED_SPEEDS = Everyone(), FixedExponential()
NOTHING_TO_TEST = (
    "no client has test samples, so there is nothing to evaluate: give some of them test data, or "
    "evaluate_every=0"
)


@checked
def simulate(
    *,
    data: Federated,
    model: nn.Module | Callable[[], nn.Module],
    algorithm: Algorithm,
    participation: Participation = EVERYONE,
    clock: Clock = FIXED_SPEEDS,
    task: Task | None = None,
    rounds: int = 60,
    seed: int = 0,
    engine: Engine | str = "auto",
    device: str = "auto",
    precision: str = "float32",
    evaluate_every: int | None = None,
    evaluate_at: Sequence[int] | None = None,
    evaluations: Evaluation | Sequence[Evaluation] | None = None,
    evaluate_share: float | int = 1.0,
    stop_at: float | None = None,
    pretrained: bool = False,
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_every: int = 1,
    sync: bool = True,
    watchers: Sequence[Watcher] = (),
    progress: bool | None = None,
    name: str | None = None,
    options: dict[str, Any] | None = None,
) -> Run:
    """Train with one algorithm, participation policy and clock, and return the run.

    "personalised" accuracy is that of the shared part after each client has tuned the rest on its
    own training data, "local" that of the model which the client has now, "global" that of the
    shared model as it is.

    Args:
        data: clients with their samples, from :func:`srpfl.data.load` or of your own.
        model: a module, or a function that returns one. Its weights are drawn from the seed, also
            those of an instance, so that runs with the same seed start alike.
        algorithm: what participants train and what the server makes of it.
        participation: who is asked, and whose answers a round waits for.
        clock: how long clients take, and what communication costs.
        task: what outputs mean; that of the data unless you name one (``data.task``, or else
            classification).
        rounds: how many to play.
        seed: of everything random.
        engine: "auto", "loop", "vectorised", "workers", "ray", or an engine of your own.
        device: "auto", "cpu", "cuda", ...
        precision: "float32", "float64", "tf32" or "bfloat16".
        evaluate_every: rounds between evaluations; about thirty evaluations by default, 0 for
            none.
        evaluate_at: the rounds after which to evaluate, instead.
        evaluations: kinds of accuracy to measure; those of the algorithm by default.
        evaluate_share: test this fraction of the clients (a float) or so many (an int), the same
            ones every time.
        stop_at: end the run at this accuracy, or at this value of the task's metric.
        pretrained: keep the weights that an instance has.
        out: folder to keep the run in as it happens.
        resume: continue the run in ``out``, also after its end if ``rounds`` is larger now.
        checkpoint_every: rounds between checkpoints.
        sync: wait for the disk. Without, the folder outlasts a killed process, but not always a
            loss of power.
        watchers: see the run after every round, and may end it.
        progress: show progress; by default on a terminal and in a notebook.
        name: what the run is called; by default after the algorithm.
        options: kept in the run's config.

    >>> import srpfl
    >>> run = srpfl.simulate(
    ...     data=srpfl.data.load("digits", clients=10, partition=srpfl.data.Shards(3), seed=0),
    ...     model=srpfl.models.MLP(64, (16,), classes=10),
    ...     algorithm=srpfl.FedRep(head_epochs=2, body_epochs=1),
    ...     participation=srpfl.Doubling(start=2, every=1),
    ...     clock=srpfl.FixedExponential(rate=1.0),
    ...     rounds=3, seed=0,
    ... )
    >>> [len(record.participants) for record in run.rounds]
    [2, 4, 8]
    """
    assert task is not None  # ``checked`` has put the data's own in its place
    check_target(stop_at, task)
    communication_of(clock)
    if participation.needs_fixed_speeds and not clock.fixed:
        raise ConfigError(
            f"{type(participation).__name__} needs the same clients to be the fastest in every "
            "round, and this clock changes their speeds: use fixed speeds or another policy"
        )
    if algorithm.needs_classes and not isinstance(getattr(task, "task", task), Classification):
        raise ConfigError(
            f"{type(algorithm).__name__} is for classifiers, and the task is "
            f"{type(task).__name__}: use another method"
        )
    given, data = data, Checked(data, task)
    looked = check_data(data)
    if isinstance(model, nn.Module) and not pretrained:
        check_start(model)
    model = algorithm.prepared(initial_model(model, seed, pretrained=pretrained))
    check_fit(model, data, task)
    check_extremes(model, data.extremes(), data, task)
    split, plans = algorithm.split(model), algorithm.plans(model)
    if isinstance(evaluations, str):
        evaluations = (evaluations,)
    kinds = default_kinds(algorithm) if evaluations is None else tuple(evaluations)
    check_kinds(kinds, algorithm)
    if stop_at is not None and algorithm.headline not in kinds:
        raise ConfigError(
            f"stop_at looks at the {algorithm.headline} {task.metric} of "
            f"{type(algorithm).__name__}, and evaluations={list(kinds)} leaves it out: add "
            f"'{algorithm.headline}'"
        )
    for kind in kinds:  # mistakes in what evaluation does are found now, not at the first one
        preparation(kind, split.shared, split.personal, algorithm, model)
    due = evaluated_rounds(rounds, evaluate_every, evaluate_at)
    if resume and out is not None:
        due = due_of_longer(RunFolder(Path(out)).config(), rounds, due)
    if due and kinds and looked.tested is False:
        raise DataError(NOTHING_TO_TEST)
    course = Course(rounds, due, kinds, algorithm.headline, stop_at, checkpoint_every)

    parts = ClientParts(split.personal, client_state_of(algorithm, split), clients=data.clients)
    server = algorithm.server_state(split)
    state = initial_state(split.shared, participation, data.clients, server)
    config = _config(
        name or type(algorithm).__name__.lower(),
        data=given,
        fingerprint=looked.fingerprint,
        transform=data.transform,
        model=model,
        algorithm=algorithm,
        participation=participation,
        clock=clock,
        task=task,
        late=participation.call(state.memory, 0, data.clients).late,
        rounds=rounds,
        seed=seed,
        evaluate_at=sorted(due),
        evaluations=list(kinds),
        stop_at=stop_at,
        pretrained=pretrained,
        precision=precision,
        options=options,
        **described_fixed(split),
        **({} if evaluate_share == 1.0 else {"evaluate_share": evaluate_share}),
    )
    counts = looked.counts
    with ExitStack() as closing:
        if isinstance(engine, str):
            workers = make_engine(
                engine, model, data, task=task, device=device, precision=precision
            )
            closing.callback(getattr(workers, "close", lambda: None))
        else:
            workers = LookingEngine(engine, data)
        folder, by = None, mean_by(algorithm, participation)
        if out is not None:
            folder = RunFolder(Path(out), durable=sync)
            closing.callback(folder.release)
            state, parts = _open(folder, config, counts, resume, state, parts)
            participation = recalling(participation, folder.path) if resume else participation
        elif resume:
            raise ConfigError("resume needs the folder of the run: out='DIR'")

        def evaluated(kind: Evaluation, state: State) -> EvaluationRecord:
            record = evaluate(
                kind,
                state=state,
                algorithm=algorithm,
                model=model,
                engine=workers,
                parts=parts,
                clients=data.clients,
                seed=seed,
                task=task,
                share=evaluate_share,
            )
            if not any(record.weights):
                raise DataError(NOTHING_TO_TEST)
            return record

        def save(state: State) -> None:
            if folder is not None:
                folder.save(state, parts)

        made = Made(model, algorithm, data.transform)

        def so_far(state: State) -> Run:
            place = None if folder is None else folder.path
            return Run(
                *(config, history.rounds, history.evaluations, state, parts, counts, made, place)
            )

        if shown(progress):
            from srpfl.loop.progress import progress_of_a_run

            watchers = (*watchers, closing.enter_context(progress_of_a_run()))
        history = History(folder, watchers, so_far)
        history.begin(config["name"], rounds, state.round, config)
        closing.callback(history.end)
        state = play_rounds(
            state,
            course=course,
            algorithm=algorithm,
            participation=participation,
            transport=VirtualTransport(
                data=data,
                engine=workers,
                clock=clock,
                plans=plans,
                parts=parts,
                seed=seed,
                finisher=finisher_of(algorithm),
                costs=Costs.of(algorithm, split),
                mean_by=by,
            ),
            seed=seed,
            history=history,
            evaluate=evaluated,
            save=save,
        )
    return so_far(state)


class LookingEngine:
    """Another's engine, which has the data from elsewhere: clients are checked before it works."""

    def __init__(self, engine: Engine, data: Checked) -> None:
        self.engine, self.data = engine, data

    def train(self, jobs: Sequence[Job]) -> list[list[Local]]:
        for job in jobs:
            self.data.look("train", job.clients)
        return self.engine.train(jobs)

    def test(self, jobs: Sequence[Job]) -> list[list[Score]]:
        for job in jobs:
            if any(plan.phases for plan in job.plans):
                self.data.look("train", job.clients)
            self.data.look("test", job.clients)
        return self.engine.test(jobs)


def finisher_of(algorithm: Algorithm) -> Finishes | None:
    """The algorithm, if it does more with a client's work than to send and keep it."""
    if algorithm.wire != "full":
        return Wired(algorithm)
    return None if type(algorithm).finish is Algorithm.finish else algorithm


def mean_by(algorithm: Algorithm, participation: Participation) -> Weighting | None:
    """How answers are averaged, if nobody looks at a single one: the algorithm takes their plain
    mean, and the policy learns nothing from them."""
    blind = getattr(type(participation), "learn", None) is Sampling.learn
    return algorithm.weighting if blind and algorithm.takes_mean else None


def _config(
    name: str,
    *,
    data: Federated,
    model: nn.Module,
    algorithm: Algorithm,
    participation: Participation,
    clock: Clock,
    task: Task,
    late: Literal["drop", "keep"],
    **rest: Any,
) -> dict[str, Any]:
    config = {
        "format": FORMAT,
        "name": name,
        "headline": algorithm.headline,
        # Where late answers are kept, it is in the clients' own times.
        "communication": 0.0 if late == "keep" else communication_of(clock),
        "sees_communication": participation.sees_communication or isinstance(clock, ComesAndGoes),
        "algorithm": describe(algorithm),
        "participation": describe(participation),
        "clock": describe(clock),
        "task": described_task(task),
        "model": str(model),
        "data": {
            "name": getattr(data, "name", type(data).__name__),
            "clients": data.clients,
            "classes": data.classes,
        },
        **rest,
    }
    told: dict[str, Any] = plain(config)
    return told


def described_fixed(parts: Split) -> dict[str, str]:
    """The hash of what nobody trains: no folder holds it, so a resumed run must bring the same."""
    return {"fixed": hash_of(parts.fixed)} if parts.fixed else {}


def described_task(task: Task) -> dict[str, Any]:
    """A task, with what readers of its records need to know."""
    told = {"metric": task.metric, "higher_is_better": task.higher_is_better}
    return {**describe(task), **told}


def _open(
    folder: RunFolder,
    config: dict[str, Any],
    counts: Counts | None,
    resume: bool,
    state: State,
    parts: ClientParts,
) -> tuple[State, ClientParts]:
    if not resume:
        folder.create(config, counts)
        return state, parts
    told = folder.config()
    held = told.get("fingerprint")  # older folders have none
    folder.check_same(as_long_as(told, {**config, "fingerprint": held}))
    other = held not in (None, config["fingerprint"])
    if other or (counts is not None and folder.counts() not in (None, counts)):
        raise RunFolderError(f"{folder.path} holds a run on other data: choose another folder")
    found = folder.restore(state, parts)
    if config["rounds"] > told["rounds"]:
        folder.rewrite(lengthened(told, config))
    return found

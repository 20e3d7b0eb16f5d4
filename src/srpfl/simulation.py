"""Playing a whole run on a virtual clock."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from srpfl.algorithms.base import Algorithm, Evaluation
from srpfl.clock.base import Clock
from srpfl.clock.exponential import FixedExponential
from srpfl.data.base import Federated, Samples
from srpfl.data.picture import counts as class_counts
from srpfl.engine import Engine, make_engine
from srpfl.engine.fit import check_fit
from srpfl.errors import ConfigError, DataError, RunFolderError, whole
from srpfl.evaluation import check_kinds, default_kinds, evaluate, preparation
from srpfl.folder import Counts, RunFolder
from srpfl.participation.base import Participation
from srpfl.participation.everyone import Everyone
from srpfl.population import PersonalParts, VirtualTransport
from srpfl.randomness import torch_seed
from srpfl.records import EvaluationRecord, RoundRecord
from srpfl.rounds import State, initial_state, play
from srpfl.run import Run
from srpfl.split import partition, state_of
from srpfl.watchers import Watcher

FORMAT = 1  # of the run folder
EVERYONE, FIXED_SPEEDS = Everyone(), FixedExponential()


def simulate(
    *,
    data: Federated,
    model: nn.Module | Callable[[], nn.Module],
    algorithm: Algorithm,
    participation: Participation = EVERYONE,
    clock: Clock = FIXED_SPEEDS,
    rounds: int = 60,
    seed: int = 0,
    engine: Engine | str = "auto",
    device: str = "auto",
    precision: str = "float32",
    evaluate_every: int | None = None,
    evaluate_at: Sequence[int] | None = None,
    evaluations: Evaluation | Sequence[Evaluation] | None = None,
    stop_at: float | None = None,
    pretrained: bool = False,
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_every: int = 1,
    watchers: Sequence[Watcher] = (),
    name: str | None = None,
    options: dict[str, Any] | None = None,
) -> Run:
    """Train with one algorithm, participation policy and clock, and return the run.

    The model's weights are drawn anew from the seed, so that runs with the same seed start alike;
    ``pretrained=True`` keeps those it has. The engine is chosen by the model and the device unless
    it is named. ``evaluate_every`` is in rounds (about thirty evaluations by default, 0 for none),
    or ``evaluate_at`` lists the rounds; ``stop_at`` ends the run at that accuracy. With ``out``
    the run is kept in a folder as it happens, and ``resume=True`` goes on with it.

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
    rounds, seed = whole("rounds", rounds), whole("seed", seed)
    checkpoint_every = whole("checkpoint_every", checkpoint_every)
    _check_numbers(rounds, seed, evaluate_every, checkpoint_every, stop_at)
    if participation.needs_fixed_speeds and not clock.fixed:
        raise ConfigError(
            f"{type(participation).__name__} needs the same clients to be the fastest in every "
            "round, and this clock changes their speeds: use fixed speeds or another policy"
        )
    _check_data(data)
    model = initial_model(model, seed, pretrained=pretrained)
    check_fit(model, data)
    shared, personal = partition(state_of(model), algorithm.is_personal(model))
    plan = algorithm.plan(model)
    if isinstance(evaluations, str):
        evaluations = (evaluations,)
    kinds = default_kinds(algorithm) if evaluations is None else tuple(evaluations)
    check_kinds(kinds, algorithm)
    for kind in kinds:  # mistakes in what evaluation does are found now, not at the first one
        preparation(kind, shared, personal, algorithm, model)
    due = evaluated_rounds(rounds, evaluate_every, evaluate_at)

    state = initial_state(shared, participation, data.clients)
    parts = PersonalParts(personal)
    config = _config(
        name or type(algorithm).__name__.lower(),
        data=data,
        model=model,
        algorithm=algorithm,
        participation=participation,
        clock=clock,
        rounds=rounds,
        seed=seed,
        evaluate_at=sorted(due),
        evaluations=list(kinds),
        stop_at=stop_at,
        pretrained=pretrained,
        precision=precision,
        options=options,
    )
    counts = class_counts(data).tolist() if data.clients <= PICTURED else None
    with ExitStack() as closing:
        if isinstance(engine, str):
            workers = make_engine(engine, model, data, device=device, precision=precision)
            closing.callback(getattr(workers, "close", lambda: None))
        else:
            workers = engine
        folder = None
        if out is not None:
            folder = RunFolder(Path(out))
            closing.callback(folder.release)
            state, parts = _open(folder, config, counts, resume, state, parts)
        elif resume:
            raise ConfigError("resume needs the folder of the run: out='DIR'")

        transport = VirtualTransport(
            data=data, engine=workers, clock=clock, plan=plan, parts=parts, seed=seed
        )
        history = History(folder, watchers)
        history.begin(config["name"], rounds, state.round, config)
        closing.callback(history.end)
        while state.round < rounds and not history.reached(stop_at, algorithm.headline):
            started = time.perf_counter()
            state, record = play(
                state,
                algorithm=algorithm,
                participation=participation,
                transport=transport,
                seed=seed,
            )
            history.add(record)
            if state.round in due:
                for kind in kinds:
                    history.add(
                        evaluate(
                            kind,
                            state=state,
                            algorithm=algorithm,
                            model=model,
                            engine=workers,
                            parts=parts,
                            clients=data.clients,
                            seed=seed,
                        )
                    )
            if folder is not None:
                folder.add_timing(state.round, time.perf_counter() - started)
                if (
                    state.round % checkpoint_every == 0
                    or state.round == rounds
                    or history.reached(stop_at, algorithm.headline)
                ):
                    folder.save(state, parts)
    return Run(config, history.rounds, history.evaluations, state, parts, counts)


class History:
    """The records so far, kept in memory, on disk and before the watchers' eyes."""

    def __init__(self, folder: RunFolder | None, watchers: Sequence[Watcher]) -> None:
        self.folder, self.watchers = folder, watchers
        self.rounds = folder.rounds() if folder else []
        self.evaluations = folder.evaluations() if folder else []

    def begin(self, name: str, rounds: int, done: int, config: Mapping[str, Any]) -> None:
        for watcher in self.watchers:
            watcher.setting(config)
            watcher.begin(name, rounds, done)

    def add(self, record: RoundRecord | EvaluationRecord) -> None:
        if self.folder is not None:
            self.folder.add(record)
        if isinstance(record, RoundRecord):
            self.rounds.append(record)
            for watcher in self.watchers:
                watcher.round(record)
        else:
            self.evaluations.append(record)
            for watcher in self.watchers:
                watcher.evaluation(record)

    def reached(self, target: float | None, kind: str) -> bool:
        """Whether the run has come to its target."""
        if target is None:
            return False
        return any(e.kind == kind and e.accuracy >= target for e in self.evaluations)

    def end(self) -> None:
        for watcher in self.watchers:
            watcher.end()


def evaluated_rounds(rounds: int, every: int | None, at: Sequence[int] | None) -> frozenset[int]:
    """After which rounds to evaluate; the last one is always among them, unless there are none.

    >>> sorted(evaluated_rounds(10, 4, None))
    [4, 8, 10]
    """
    if at is not None:
        at = [whole("evaluate_at", round) for round in at]
        if any(not 1 <= round <= rounds for round in at):
            raise ConfigError(f"the rounds to evaluate after must be from 1 to {rounds}, not {at}")
        return frozenset(at)
    every = max(1, rounds // 30) if every is None else every
    return frozenset([*range(every, rounds + 1, every), rounds]) if every else frozenset()


def initial_model(
    model: nn.Module | Callable[[], nn.Module], seed: int, *, pretrained: bool = False
) -> nn.Module:
    """A copy of the model (or what the function returns) with the seed's initial weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, "weights"))
        if not isinstance(model, nn.Module):
            return model()
        model = copy.deepcopy(model)
        if not pretrained:
            for module in model.modules():
                for way in ("reset_parameters", "_reset_parameters"):  # attention has the second
                    reset = getattr(module, way, None)
                    if callable(reset):
                        reset()
    return model


def describe(value: Any) -> Any:
    """A choice as JSON: its class and its fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: describe(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"kind": type(value).__name__, **fields}
    if isinstance(value, (list, tuple)):
        return [describe(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return getattr(value, "__qualname__", type(value).__name__)


def _config(
    name: str,
    *,
    data: Federated,
    model: nn.Module,
    algorithm: Algorithm,
    participation: Participation,
    clock: Clock,
    **rest: Any,
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "name": name,
        "headline": algorithm.headline,
        "communication": clock.communication,
        "sees_communication": participation.sees_communication,
        "algorithm": describe(algorithm),
        "participation": describe(participation),
        "clock": describe(clock),
        "model": str(model),
        "data": {
            "name": getattr(data, "name", type(data).__name__),
            "clients": data.clients,
            "classes": data.classes,
        },
        **rest,
    }


def _open(
    folder: RunFolder,
    config: dict[str, Any],
    counts: Counts | None,
    resume: bool,
    state: State,
    parts: PersonalParts,
) -> tuple[State, PersonalParts]:
    if not resume:
        folder.create(config, counts)
        return state, parts
    folder.check_same(config)
    if counts is not None and folder.counts() not in (None, counts):
        raise RunFolderError(f"{folder.path} holds a run on other data: choose another folder")
    return folder.restore(parts.initial) or (state, parts)


def _check_numbers(
    rounds: int, seed: int, every: int | None, checkpoint_every: int, stop_at: float | None
) -> None:
    if rounds < 1:
        raise ConfigError(f"a run has at least one round, not {rounds}")
    if seed < 0:
        raise ConfigError(f"the seed must be zero or a positive number, not {seed}")
    if every is not None and every < 0:
        raise ConfigError(f"evaluate_every must be a number of rounds (0 for never), not {every}")
    if checkpoint_every < 1:
        raise ConfigError(f"checkpoint_every must be at least one round, not {checkpoint_every}")
    if stop_at is not None and not 0 < stop_at <= 1:
        raise ConfigError(f"the accuracy to stop at is a fraction above 0, not {stop_at}")


def _check_data(data: Federated) -> None:
    if data.clients < 1:
        raise DataError("there are no clients: give the data to at least one")
    if data.clients > LAZY:
        return
    for client in range(data.clients):
        if data.size(client) == 0:
            raise DataError(
                f"client {client} has no training data: use fewer clients or another partition"
            )
        if data.clients <= PICTURED:
            for samples in (data.train(client), data.test(client)):
                check_samples(samples, client, data.classes)


def check_samples(samples: Samples, client: int, classes: int) -> None:
    """Refuse what no model could learn from."""
    x, y = samples
    if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray) or len(x) != len(y):
        raise DataError(f"client {client}'s samples must be NumPy arrays, as many inputs as labels")
    if y.dtype.kind not in "iu" or (len(y) and not (y.min() >= 0 and y.max() < classes)):
        raise DataError(f"client {client}'s labels must be whole numbers from 0 to {classes - 1}")
    if x.dtype.kind not in "iufb":
        raise DataError(f"client {client}'s inputs must be real numbers, not {x.dtype}")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise DataError(f"client {client} has inputs that are not finite numbers")


PICTURED = 1000  # clients whose classes are counted for the partition's picture
LAZY = 100_000  # beyond this a population is taken on trust: asking everyone would take long

"""Several runs at once: the local work of all their rounds as one larger cohort.

Early rounds have few clients, too few to keep a GPU busy; runs with other seeds have as many more
with the same work to do. Each run is played by :func:`srpfl.simulate` in a thread of its own, but
no two threads are ever awake: a run plays until it needs the engine, then the next one does, and
when all wait their jobs are carried out as one. So whatever PyTorch keeps for the whole process
(random numbers, threads, precision) is used by one run at a time, as if there were no others.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from queue import SimpleQueue
from threading import Thread
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from srpfl.core.initial import initial_model
from srpfl.core.split import state_of
from srpfl.core.trees import Tree, leaves
from srpfl.data.checks import Checked
from srpfl.data.joined import Joined
from srpfl.engine import Engine, Job, Local, Score, VectorisedEngine, make_engine
from srpfl.engine.fit import check_fit, probe
from srpfl.engine.fitting import FittingEngine
from srpfl.engine.precision import called
from srpfl.errors import ConfigError
from srpfl.loop.arguments import bound_arguments
from srpfl.loop.simulation import simulate
from srpfl.runs.run import Run

SETTINGS = ("task", "engine", "device", "precision")


def simulate_together(runs: Sequence[Mapping[str, Any]]) -> list[Run | Exception]:
    """Play several runs side by side; each is given by its arguments to :func:`srpfl.simulate`.

    Every run comes out as it does alone, but it takes less time where a device has room for more
    clients than a round of one run has. The runs must have models of one shape and data of one
    kind; seeds, partitions, clocks, participation and numbers of rounds may differ. Those with the
    same algorithm (such as FedRep and SRPFL) train as one cohort. A run that fails does not stop
    the others: its error is returned in its place. Engines that do not train clients as one play
    the runs in turn.

    >>> import srpfl
    >>> runs = srpfl.simulate_together([
    ...     {
    ...         "data": srpfl.data.load("digits", clients=10, seed=seed),
    ...         "model": srpfl.models.MLP(64, (16,), classes=10),
    ...         "algorithm": srpfl.FedRep(head_epochs=2, body_epochs=1),
    ...         "participation": srpfl.Doubling(start=2, every=1),
    ...         "rounds": 2, "seed": seed,
    ...     }
    ...     for seed in range(3)
    ... ])
    >>> [[len(record.participants) for record in run.rounds] for run in runs]
    [[2, 4], [2, 4], [2, 4]]
    """
    engine = _joint_engine(runs) if len(runs) > 1 else None
    if engine is None:
        return [_alone(run) for run in runs]
    plays = [_Play(number, run) for number, run in enumerate(runs)]
    try:
        _meet(engine, plays)
    finally:
        for play in plays:
            play.stop()
    return [play.outcome for play in plays if play.outcome is not None]


def _alone(run: Mapping[str, Any]) -> Run | Exception:
    try:
        return simulate(**run)
    except Exception as error:
        return error


def _joint_engine(runs: Sequence[Mapping[str, Any]]) -> Engine | None:
    """One engine for all; None where the runs' engine does not train clients as one."""
    chosen = []
    for run in runs:
        chosen.append(bound_arguments(simulate, **run))
    settings = {name: chosen[0][name] for name in SETTINGS}
    if any({name: one[name] for name in SETTINGS} != settings for one in chosen):
        raise ConfigError(
            "runs that are played together need the same task, engine, device and precision"
        )
    name = settings.pop("engine")
    if not isinstance(name, str):
        raise ConfigError("runs that are played together share an engine of their own: name it")
    data = Joined([Checked(one["data"], one["task"]) for one in chosen])
    models = [
        one["algorithm"].prepared(
            initial_model(one["model"], one["seed"], pretrained=one["pretrained"])
        )
        for one in chosen
    ]
    check_fit(models[0], data, settings["task"])
    engine = make_engine(name, models[0], data, **settings)
    stacked = engine.stacked if isinstance(engine, FittingEngine) else engine
    if not isinstance(stacked, VectorisedEngine):
        return None
    two = probe(data).x
    if not all(_same_network(models[0], other, two) for other in models[1:]):
        raise ConfigError("runs that are played together need models of the same shape")
    return engine


def _same_network(one: nn.Module, other: nn.Module, two: Tree) -> bool:
    """Whether two models differ in nothing but their weights. Tried out on a few inputs, because
    a model may hold more than shows in its text and its state."""
    given, theirs = state_of(one), state_of(other)
    if str(one) != str(other) or given.keys() != theirs.keys():
        return False
    if any(given[name].shape != theirs[name].shape for name in given):
        return False
    results = []
    for network in (one, other):  # copies, in case a pass leaves something behind
        with torch.no_grad():
            results.append(called(copy.deepcopy(network).eval())(given, two)[0])
    pairs = zip(leaves(results[0]), leaves(results[1]), strict=True)
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


class _Request(NamedTuple):
    work: Literal["train", "test"]
    jobs: Sequence[Job]


class _Play:
    """A run and, for it, its engine: what it is asked to do waits here until all have asked."""

    def __init__(self, number: int, run: Mapping[str, Any]) -> None:
        self.number = number  # the place of its data among the engine's
        self.outcome: Run | Exception | None = None
        self.interrupt: BaseException | None = None
        self._requests: SimpleQueue[_Request | None] = SimpleQueue()
        self._answers: SimpleQueue[Any] = SimpleQueue()
        self._thread = Thread(target=self._play, args=(run,), daemon=True)
        self._thread.start()

    def go_on(self, answer: Any = None) -> _Request | None:
        """Wake the run with what it waits for; its next request, or None when it is over."""
        self._answers.put(answer)
        request = self._requests.get()
        if self.interrupt is not None:
            raise self.interrupt
        return request

    def stop(self) -> None:
        """End the run where it waits, as an interrupt would."""
        self._answers.put(KeyboardInterrupt())
        self._thread.join()

    def train(self, jobs: Sequence[Job]) -> list[list[Local]]:
        answer: list[list[Local]] = self._ask("train", jobs)
        return answer

    def test(self, jobs: Sequence[Job]) -> list[list[Score]]:
        answer: list[list[Score]] = self._ask("test", jobs)
        return answer

    def _play(self, run: Mapping[str, Any]) -> None:
        try:
            self._wait()
            self.outcome = simulate(**{"progress": False, **run, "engine": self})
        except Exception as error:
            self.outcome = error
        except BaseException as interrupt:
            self.interrupt = interrupt
        finally:
            self._requests.put(None)

    def _ask(self, work: Literal["train", "test"], jobs: Sequence[Job]) -> Any:
        self._requests.put(_Request(work, [replace(job, run=self.number) for job in jobs]))
        return self._wait()

    def _wait(self) -> Any:
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer


def _meet(engine: Engine, plays: Sequence[_Play]) -> None:
    """Let all runs play until they need the engine, carry out what they ask for, and so on."""
    waiting = {run: request for run, play in enumerate(plays) if (request := play.go_on())}
    while waiting:
        # Those who have nothing to test wait for those who have: then all train the next round.
        work: Literal["train", "test"] = (
            "test" if any(request.work == "test" for request in waiting.values()) else "train"
        )
        jobs = {run: request.jobs for run, request in waiting.items() if request.work == work}
        for run, answer in _answers(engine, work, jobs).items():
            del waiting[run]
            request = plays[run].go_on(answer)
            if request is not None:
                waiting[run] = request


def _answers(
    engine: Engine, work: Literal["train", "test"], jobs: Mapping[int, Sequence[Job]]
) -> Mapping[int, Any]:
    """What each run gets. Where jobs fail together each is tried alone, so that an error comes to
    the run that caused it."""
    try:
        every = [job for some in jobs.values() for job in some]
        found: Iterator[Any] = iter(engine.train(every) if work == "train" else engine.test(every))
        return {run: [next(found) for _ in some] for run, some in jobs.items()}
    except Exception as error:
        if len(jobs) == 1:
            return dict.fromkeys(jobs, error)
    apart = [_answers(engine, work, {run: some}) for run, some in jobs.items()]
    return {run: answer for answers in apart for run, answer in answers.items()}

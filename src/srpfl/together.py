"""Several runs at once: the local work of all their rounds as one larger cohort.

Early rounds have few clients, too few to keep a GPU busy; runs with other seeds have as many more
with the same work to do. Each run is played by :func:`srpfl.simulate` in a thread of its own, but
no two threads are ever awake: a run goes on until it needs the engine, then the next one does, and
when all wait their jobs are carried out as one. So whatever PyTorch keeps for the whole process
(random numbers, threads, precision) is used by one run at a time, as if there were no others.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from srpfl.data.base import Samples
from srpfl.data.joined import Joined
from srpfl.engine import Job, Local, Score, VectorisedEngine, make_engine
from srpfl.engine.fit import check_fit
from srpfl.engine.store import tensors
from srpfl.errors import ConfigError
from srpfl.run import Run
from srpfl.simulation import initial_model, simulate
from srpfl.split import state_of

SETTINGS = ("engine", "device", "precision")


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
    plays = [_Play(run) for run in runs]
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


def _joint_engine(runs: Sequence[Mapping[str, Any]]) -> VectorisedEngine | None:
    """One engine for all; None where the runs' engine does not train clients as one."""
    chosen = []
    for run in runs:
        arguments = inspect.signature(simulate).bind(**run)
        arguments.apply_defaults()
        chosen.append(arguments.arguments)
    settings = {name: chosen[0][name] for name in SETTINGS}
    if any({name: one[name] for name in SETTINGS} != settings for one in chosen):
        raise ConfigError("runs that are played together need the same engine, device, precision")
    name = settings.pop("engine")
    if not isinstance(name, str):
        raise ConfigError("runs that are played together share an engine of their own: name it")
    data = Joined([one["data"] for one in chosen])
    models = [
        initial_model(one["model"], one["seed"], pretrained=one["pretrained"]) for one in chosen
    ]
    check_fit(models[0], data)
    engine = make_engine(name, models[0], data, **settings)
    if not isinstance(engine, VectorisedEngine):
        return None
    x, y = data.train(0)
    few, _ = tensors(Samples(x[:2], y[:2]), torch.device("cpu"))
    probe = data.transform.prepare(few, next(models[0].parameters()).dtype)
    if not all(_same_network(models[0], other, probe) for other in models[1:]):
        raise ConfigError("runs that are played together need models of the same shape")
    return engine


def _same_network(one: nn.Module, other: nn.Module, probe: Tensor) -> bool:
    """Whether two models differ in nothing but their weights. Tried out on a few inputs, because
    a model may hold more than shows in its text and its state."""
    given, theirs = state_of(one), state_of(other)
    if str(one) != str(other) or given.keys() != theirs.keys():
        return False
    if any(given[name].shape != theirs[name].shape for name in given):
        return False
    one.eval()
    other.eval()
    with torch.no_grad():
        return torch.equal(one(probe), functional_call(other, given, (probe,)))


class _Request(NamedTuple):
    work: Literal["train", "test"]
    job: Job


class _Play:
    """A run and, for it, its engine: what it is asked to do waits here until all have asked."""

    def __init__(self, run: Mapping[str, Any]) -> None:
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

    def train(self, job: Job) -> list[Local]:
        answer: list[Local] = self._ask(_Request("train", job))
        return answer

    def test(self, job: Job) -> list[Score]:
        answer: list[Score] = self._ask(_Request("test", job))
        return answer

    def _play(self, run: Mapping[str, Any]) -> None:
        try:
            self._wait()
            self.outcome = simulate(**{**run, "engine": self})
        except Exception as error:
            self.outcome = error
        except BaseException as interrupt:
            self.interrupt = interrupt
        finally:
            self._requests.put(None)

    def _ask(self, request: _Request) -> Any:
        self._requests.put(request)
        return self._wait()

    def _wait(self) -> Any:
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer


def _meet(engine: VectorisedEngine, plays: Sequence[_Play]) -> None:
    """Let all runs go on until they need the engine, carry out what they ask for, and so on."""
    waiting = {run: request for run, play in enumerate(plays) if (request := play.go_on())}
    while waiting:
        # Whoever has nothing to test waits for those who have: then all train the next round.
        work: Literal["train", "test"] = (
            "test" if any(request.work == "test" for request in waiting.values()) else "train"
        )
        jobs = {run: request.job for run, request in waiting.items() if request.work == work}
        for run, answer in _answers(engine, work, jobs).items():
            del waiting[run]
            request = plays[run].go_on(answer)
            if request is not None:
                waiting[run] = request


def _answers(
    engine: VectorisedEngine, work: Literal["train", "test"], jobs: Mapping[int, Job]
) -> Mapping[int, Any]:
    """What each run gets. Where jobs fail together each is tried alone, so that an error comes to
    the run that caused it."""
    try:
        return engine.train_together(jobs) if work == "train" else engine.test_together(jobs)
    except Exception as error:
        if len(jobs) == 1:
            return dict.fromkeys(jobs, error)
    apart = [_answers(engine, work, {run: job}) for run, job in jobs.items()]
    return {run: answer for answers in apart for run, answer in answers.items()}

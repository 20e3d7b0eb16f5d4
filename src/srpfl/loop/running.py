"""One run loop, for simulated and for real clients: play, record, save, evaluate when due."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from srpfl.algorithms.base import Evaluation
from srpfl.core.collector import seldom_collected
from srpfl.errors import ConfigError, DivergedError, whole
from srpfl.loop.rounds import NoAnswerError, Transport, Updates, play
from srpfl.loop.watchers import Watcher
from srpfl.participation.base import Participation
from srpfl.runs.folder import RunFolder
from srpfl.runs.records import EvaluationRecord, RoundRecord
from srpfl.runs.run import Run
from srpfl.runs.state import State
from srpfl.task import Task

Evaluate = Callable[[Evaluation, State], EvaluationRecord | None]  # None: nobody could be tested


@dataclass(frozen=True)
class Course:
    """How long a run is, and what is done on the way."""

    rounds: int
    due: frozenset[int]  # the rounds after which to evaluate
    kinds: tuple[Evaluation, ...]
    headline: Evaluation
    stop_at: float | None = None
    checkpoint_every: int = 1
    tries: int = 1  # of a round that nobody answers

    def saves(self, round: int) -> bool:
        return round % self.checkpoint_every == 0 or round == self.rounds


def play_rounds(
    state: State,
    *,
    course: Course,
    algorithm: Updates,
    participation: Participation,
    transport: Transport,
    seed: int,
    history: History,
    evaluate: Evaluate,
    save: Callable[[State], None],
) -> State:
    """Rounds until the end. A round is saved before anyone hears that it counted, and before it is
    evaluated: a run that was stopped in between evaluates first when it continues."""
    with history.of_divergence(), seldom_collected():
        _evaluate_if_due(state, course, history, evaluate)
        tries = 0
        while state.round < course.rounds and not history.reached(course.stop_at, course.headline):
            started = time.perf_counter()
            try:
                state, record = play(
                    state,
                    algorithm=algorithm,
                    participation=participation,
                    transport=transport,
                    seed=seed,
                )
            except NoAnswerError:
                tries += 1
                if tries >= course.tries:
                    raise
                continue
            tries = 0
            history.add(record)
            if course.saves(state.round):
                save(state)
            _evaluate_if_due(state, course, history, evaluate)
            if not course.saves(state.round) and history.reached(course.stop_at, course.headline):
                save(state)
            history.add_timing(state.round, time.perf_counter() - started)
            if history.ended_by_a_watcher(state):
                if not course.saves(state.round):
                    save(state)
                break
    return state


def _evaluate_if_due(state: State, course: Course, history: History, evaluate: Evaluate) -> None:
    if state.round not in course.due:
        return
    done = {record.kind for record in history.evaluations if record.round == state.round}
    for kind in course.kinds:
        if kind not in done and (record := evaluate(kind, state)) is not None:
            history.add(record)


class History:
    """The records so far, kept in memory, on disk and before the watchers' eyes."""

    def __init__(
        self,
        folder: RunFolder | None,
        watchers: Sequence[Watcher],
        so_far: Callable[[State], Run] | None = None,
    ) -> None:
        self.folder, self.watchers, self._so_far = folder, watchers, so_far
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
        return any(e.kind == kind and e.reaches(target) for e in self.evaluations)

    def ended_by_a_watcher(self, state: State) -> bool:
        """Show the run so far to the watchers that want to see it; whether one has seen enough."""
        looking = [w for w in self.watchers if _overrides(w, "after")]
        if not looking or self._so_far is None:
            return False
        run = self._so_far(state)
        said = [watcher.after(run) for watcher in looking]  # all of them get to see it
        return any(said)

    def add_timing(self, round: int, seconds: float) -> None:
        if self.folder is not None:
            self.folder.add_timing(round, seconds)

    @contextlib.contextmanager
    def of_divergence(self) -> Iterator[None]:
        """Training that comes to nothing leaves a note of it in the folder."""
        try:
            yield
        except DivergedError as error:
            if self.folder is not None:
                self.folder.note_divergence(str(error))
            raise

    def end(self) -> None:
        for watcher in self.watchers:
            watcher.end()


def _overrides(watcher: Watcher, name: str) -> bool:
    own = getattr(type(watcher), name, None)
    return own is not None and own is not getattr(Watcher, name)


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


def check_target(target: float | None, task: Task) -> None:
    """Refuse a value to stop at that no run could have."""
    if target is None:
        return
    if task.metric == "accuracy" and not 0 < target <= 1:
        raise ConfigError(f"the accuracy to stop at is a fraction above 0, not {target}")
    if not math.isfinite(target):
        raise ConfigError(f"the {task.metric} to stop at must be a number, not {target}")

"""Policies on the same linear problem, played side by side by the package's own round loop."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from srpfl.linear import distance
from srpfl.linear.problem import Array
from srpfl.linear.run import LinearClients, LinearFedRep
from srpfl.loop.rounds import Arrival, Request, initial_state, play
from srpfl.participation import Answer, Participation
from srpfl.studies.auto_settings import Setting, SettingProblem

REPLAY = 1_000_000  # rounds between one replay and the next; no run has as many


@dataclass
class Course:
    """A run: how far it was after each round, when, and how many answered."""

    initial: float
    distance: list[float] = field(default_factory=list)
    computing: list[float] = field(default_factory=list)
    heard: list[int] = field(default_factory=list)

    def time_to(self, target: float, communication: float) -> float:
        """When the distance is first at or below the target; infinite if it never is."""
        if self.initial <= target:
            return 0.0
        for place, away in enumerate(self.distance):
            if away <= target:
                return self.computing[place] + communication * (place + 1)
        return math.inf

    @property
    def waits(self) -> list[list[int]]:
        """n, for so many rounds."""
        return [[n, len(list(same))] for n, same in itertools.groupby(self.heard)]


@dataclass(frozen=True)
class Entry:
    """Who plays, at which C, and for how long at most (time, with communication)."""

    policy: Participation
    communication: float = 0.0
    limit: float = math.inf


class Replayed(LinearClients):
    """The same clients with the batches of other rounds, and the times of other rounds where speeds
    change: the same problem with other luck."""

    replay: int = 0

    def send(self, request: Request) -> Iterator[Arrival]:
        return super().send(self._elsewhere(request))

    def collect(self, request: Request, counted: Sequence[Arrival]) -> list[Answer]:
        return super().collect(self._elsewhere(request), counted)

    def _elsewhere(self, request: Request) -> Request:
        return replace(request, round=request.round + REPLAY * self.replay)


def side_by_side(
    setting: Setting,
    problem: SettingProblem,
    initial: Array,
    entries: Mapping[str, Entry],
    *,
    rounds: int,
    until: float = 0.0,
    replay: int = 0,
) -> dict[str, Course]:
    """Each run ends at its first distance at or below ``until``, or after so many rounds.

    The batches of a round are drawn once for all of them.
    """
    server = LinearFedRep(eta=setting.eta)
    away = distance(problem.representation, initial)
    courses = {name: Course(away) for name in entries}
    transports = {
        name: Replayed(problem, setting.clock_at(entry.communication), setting.eta)
        for name, entry in entries.items()
    }
    for transport in transports.values():
        transport.replay = replay
    states = {
        name: initial_state({"B": torch.from_numpy(initial)}, entry.policy, problem.clients)
        for name, entry in entries.items()
    }
    playing = list(entries)
    for round in range(1, rounds + 1):
        for name in list(playing):
            entry, course = entries[name], courses[name]
            states[name], record = play(
                states[name],
                algorithm=server,
                participation=entry.policy,
                transport=transports[name],
                seed=problem.seed,
            )
            away = distance(problem.representation, states[name].shared["B"].numpy())
            course.distance.append(away)
            course.computing.append(record.computing)
            course.heard.append(len(record.participants))
            if away <= until or record.computing + entry.communication * round > entry.limit:
                playing.remove(name)
        if not playing:
            break
    return courses


def floor_of(course: Course) -> float:
    """The distance at which the noise holds a run: the mean of its last quarter."""
    return float(np.mean(course.distance[-len(course.distance) // 4 :]))

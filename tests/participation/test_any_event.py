"""Late answers that are kept, whatever happens: each was worked out from what its client was sent
and had kept, counts once, and a process that dies at any event changes nothing."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import event, given, settings
from hypothesis import strategies as st

import srpfl
import tiny
from participation.scripted import Given, Leaving, World
from srpfl.core.slots import Reply
from srpfl.engine.base import Job, Local
from srpfl.loop.transport import NoAnswerError
from srpfl.participation import Compass, FedAsync, FedBuff, SemiAsync
from srpfl.runs.flights import read_flights, told_flights

ROUNDS = 8
EVENTS = ("idle", "launch", "next", "bring", "settle")


class Noted:
    """y is different for every version, client, number of answers before, and amount of work."""

    def train(self, jobs: Sequence[Job]) -> list[list[Local]]:
        return [
            [
                Local(client, worked(job, client, kept["n"]), 1.0, 10)
                for client, kept in zip(job.clients, job.personal, strict=True)
            ]
            for job in jobs
        ]


def worked(job: Job, client: int, before: torch.Tensor) -> Reply:
    steps = sum(plan.step_count(100) for plan in job.plans)
    return Reply(end(job.shared["x"], client, before, steps), {"n": before + 1})


def end(x: torch.Tensor, client: int, before: torch.Tensor, work: int) -> dict[str, torch.Tensor]:
    return {"x": 0.9 * x + client + 1 + 0.01 * before + 0.001 * work}


@dataclasses.dataclass(frozen=True)
class Dropping(Given):
    """A clock by which some asks are never answered."""

    never: tuple[tuple[int, int], ...] = ()  # (client, round)

    def times(self, seed: int, round: int, clients: Any, population: int, work: Any) -> Any:
        times = super().times(seed, round, clients, population, work)
        gone = [(client, round) in self.never for client in clients.tolist()]
        return np.where(gone, np.inf, times)


class Killed(Exception):
    pass


class Watched(World):
    """Compares every answer with one that is worked out anew, and can die at any event."""

    def __init__(self, policy: Any, clock: Any, *, dies: Sequence[int] = ()) -> None:
        self.dies, self.events, self.answered = list(dies), 0, Counter[int]()
        self.versions: list[torch.Tensor] = []
        super().__init__(policy, clock, srpfl.FedAvg(epochs=2))

    def restart(self) -> None:
        self.engine: Any = Noted()
        self.data = tiny.data(clients=self.population, per_client=100)
        super().restart()
        for name in EVENTS:
            setattr(self.transport, name, self._event(name, getattr(self.transport, name)))

    def _event(self, name: str, call: Any) -> Any:
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.events += 1
            if self.events in self.dies:
                raise Killed
            found = call(*args, **kwargs)
            if name == "bring":
                self.check(args[0], found)
            return found

        return watched

    def check(self, landed: Any, answers: Any) -> None:
        for flight, answer in zip(landed, answers, strict=True):
            work = max(1, int(flight.part * 20 + 1e-9))
            x, n = (
                self.versions[flight.version],
                torch.tensor(float(self.answered[flight.client])).double(),
            )
            assert torch.equal(answer.shared["x"], end(x, flight.client, n, work)["x"])
            assert (answer.age, answer.part) == (self.state.round - flight.version, flight.part)

    def go(self) -> None:
        """Play all rounds; after a death go on from what the last round left behind."""
        while self.state.round < ROUNDS:
            self.versions[self.state.round :] = [self.state.shared["x"]]
            parts = copy.deepcopy(self.parts)
            try:
                self.play()
            except Killed:
                told = json.loads(json.dumps(told_flights(self.state.flights)))
                self.state = dataclasses.replace(self.state, flights=read_flights(told))
                self.parts = parts
                self.restart()
            else:
                self.answered.update(self.records[-1].participants)


POLICIES = st.one_of(
    st.builds(
        lambda kind, sample, k, age: kind(sample=sample, k=min(k, sample), max_age=age),
        st.sampled_from([FedBuff, SemiAsync]),
        st.integers(1, 4),
        st.integers(1, 4),
        st.sampled_from([None, 0, 1, 3]),
    ),
    st.builds(FedAsync, sample=st.integers(1, 4)),
    st.builds(Compass, sample=st.integers(1, 4), least=st.sampled_from([0.1, 0.25, 1.0])),
)


@st.composite
def clocks(draw: Any) -> Any:
    seconds = st.floats(0.5, 12.0) | st.sampled_from([1.0, 2.0, 3.0])
    times = tuple(draw(st.lists(seconds, min_size=4, max_size=6)))
    kind = draw(st.sampled_from(["always", "leaving", "dropping"]))
    if kind == "leaving":
        stays = tuple(draw(st.lists(st.floats(1.0, 20.0), min_size=6, max_size=6))[: len(times)])
        away = draw(st.sampled_from([1.1, 2.0]))
        return Leaving(times, periods=tuple(away * each for each in stays), stay=stays)
    if kind == "dropping":
        asks = st.tuples(st.integers(0, 5), st.integers(0, ROUNDS))
        return Dropping(times, never=tuple(draw(st.lists(asks, max_size=12))))
    return Given(times, communication=draw(st.sampled_from([0.0, 3.0])))


@settings(max_examples=100, deadline=None)
@given(policy=POLICIES, clock=clocks(), dies=st.lists(st.integers(1, 150), max_size=3, unique=True))
def test_answers_are_right_and_a_death_at_any_event_changes_nothing(
    policy: Any, clock: Any, dies: list[int]
) -> None:
    one, other = Watched(policy, clock), Watched(policy, clock, dies=dies)
    try:
        one.go()
    except NoAnswerError:
        assert type(clock) is not Given
        event("nobody answers")
        return
    other.go()
    assert other.records == one.records
    assert other.state.flights == one.state.flights
    assert other.x == one.x
    for world in (one, other):
        check_conserved(world)
    event(type(policy).__name__)
    event(type(clock).__name__)
    if any(record.late for record in one.records):
        event("dropped")
    if any(record.lost for record in one.records):
        event("lost")


def check_conserved(world: Watched) -> None:
    """Every ask has come to one end, or to none yet; what an answer leaves behind is there once."""
    ends = Counter[int]()
    for record in world.records:
        ends.update([*record.participants, *record.late, *record.lost])
    asked = sum(record.asked for record in world.records)
    assert asked == ends.total() + len(world.state.flights)
    assert len({flight.client for flight in world.state.flights}) == len(world.state.flights)
    kept = {client: int(part["n"]) for client, part in world.parts.trained.items()}
    assert kept == {client: n for client, n in world.answered.items() if n}
